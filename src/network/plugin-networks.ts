/** Networks of plugins, from their creation to their removal. */
import type { NetworkPlugins } from '../ports/network-plugin.js';
import type { Logger } from '../ports/logger.js';
import type { NetworkRequest, NetworkSummary } from '../ports/network.js';
import { isPluginDriver, isPluginIpam } from './network-plan.js';
import { type LeasedPool, leasePools, releasePools } from './plugin-addresses.js';
import { unlessRefused } from './plugin-debts.js';
import { checkNetworkDriver, networkRequest } from './plugin-network.js';

/** The known engine has this name for the address space of its own manager. */
const OWN_ADDRESS_SPACE = 'LocalDefault';

export class PluginNetworks {
  constructor(
    private readonly plugins: NetworkPlugins,
    private readonly log: Logger,
  ) {}

  /** Tells whether a plugin has a part in a network. */
  has(network: Pick<NetworkSummary, 'driver' | 'ipam' | 'configOnly'>): boolean {
    return !network.configOnly && (isPluginDriver(network.driver) || isPluginIpam(network));
  }

  /**
   * Finds the plugins that a new network needs, and asks for its subnets. @throws EngineError not-found for a missing
   * plugin.
   */
  async prepare(request: NetworkRequest): Promise<LeasedPool[] | undefined> {
    if (request.configOnly) return undefined;
    if (isPluginDriver(request.driver)) await checkNetworkDriver(this.plugins, request.driver);
    return isPluginIpam(request) ? leasePools(await this.plugins.addresses(request.ipam.driver), request) : undefined;
  }

  /** Asks the driver of a network to make it. */
  async make(summary: NetworkSummary): Promise<void> {
    if (!isPluginDriver(summary.driver)) return;
    const addressSpace = isPluginIpam(summary)
      ? await (await this.plugins.addresses(summary.ipam.driver)).addressSpace()
      : OWN_ADDRESS_SPACE;
    await (await this.plugins.network(summary.driver)).createNetwork(networkRequest(summary, addressSpace));
  }

  /**
   * Asks for the removal of a network. @throws EngineError of a driver that does not answer; failures of an address
   * manager are only logged.
   */
  async unmake(summary: NetworkSummary, pools: readonly LeasedPool[]): Promise<void> {
    if (isPluginDriver(summary.driver)) {
      const plugin = await this.plugins.network(summary.driver);
      await plugin.deleteNetwork(summary.id).catch((error: unknown) => {
        unlessRefused(error);
        this.log.warn({ err: error, network: summary.name }, 'the driver of a network that is removed has refused to');
      });
    }
    await this.release(summary, pools);
  }

  /** Gives the subnets of a network back. */
  async release(network: Pick<NetworkSummary, 'name' | 'ipam'>, pools: readonly LeasedPool[]): Promise<void> {
    if (!isPluginIpam(network)) return;
    try {
      await releasePools(await this.plugins.addresses(network.ipam.driver), pools);
    } catch (error) {
      this.log.warn(
        { err: error, network: network.name },
        'a manager of addresses could not be told that a network is gone',
      );
    }
  }
}
