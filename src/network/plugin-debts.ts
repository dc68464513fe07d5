/**
 * Plugins give addresses and endpoints for containers, and must be told to take them back. These debts outlive the
 * daemon. So each is on disk before the container gets the address, and until it was given back.
 */
import { isEngineError } from '../errors/engine-error.js';
import type { NetworkPlugins } from '../ports/network-plugin.js';
import type { Logger } from '../ports/logger.js';
import { PLUGIN_REFUSED } from '../ports/plugin.js';
import type { RecordFile } from './network-records.js';

export type Debt =
  | { readonly kind: 'address'; readonly driver: string; readonly poolId: string; readonly address: string }
  | { readonly kind: 'endpoint'; readonly driver: string; readonly networkId: string; readonly endpointId: string };

export class PluginDebts {
  readonly #debts = new Map<string, Debt>();
  /** These are debts of an earlier run that are not claimed yet. */
  #inherited = new Set<string>();
  #writing: Promise<void> = Promise.resolve();

  constructor(
    private readonly file: RecordFile,
    private readonly plugins: NetworkPlugins,
    private readonly log: Logger,
  ) {}

  async load(): Promise<void> {
    const stored = (await this.file.read()) as readonly Debt[] | undefined;
    for (const debt of stored ?? []) this.#debts.set(keyOf(debt), debt);
    this.#inherited = new Set(this.#debts.keys());
  }

  /** Adds a debt; it is on disk when the promise resolves. */
  async add(debt: Debt): Promise<void> {
    this.#inherited.delete(keyOf(debt));
    this.#debts.set(keyOf(debt), debt);
    await this.#write().catch((error: unknown) => {
      this.#debts.delete(keyOf(debt));
      throw error;
    });
  }

  /** Claims a debt of an earlier run, for a container that still uses it. */
  claim(debt: Debt): void {
    this.#inherited.delete(keyOf(debt));
  }

  /** Gives a debt back. If the plugin cannot take it now, the next start of the daemon tries again. Never fails. */
  async pay(debt: Debt): Promise<void> {
    try {
      await this.#giveBack(debt);
      this.#debts.delete(keyOf(debt));
      await this.#write();
    } catch (error) {
      this.log.error({ err: error, ...debt }, 'a plugin could not be told that something is not used any more');
    }
  }

  /** Gives back the debts of an earlier run that nobody has claimed. */
  async settle(): Promise<void> {
    const keys = [...this.#inherited];
    this.#inherited.clear();
    await Promise.all(keys.flatMap((key) => this.#debts.get(key) ?? []).map((debt) => this.pay(debt)));
  }

  async #giveBack(debt: Debt): Promise<void> {
    if (debt.kind === 'address') {
      const plugin = await this.plugins.addresses(debt.driver);
      await plugin.releaseAddress(debt.poolId, debt.address).catch(unlessRefused);
      return;
    }
    const { networkId, endpointId } = debt;
    const plugin = await this.plugins.network(debt.driver);
    await plugin.leave(networkId, endpointId).catch(unlessRefused);
    await plugin.deleteEndpoint(networkId, endpointId).catch(unlessRefused);
  }

  #write(): Promise<void> {
    const run = this.#writing.then(() => this.file.write([...this.#debts.values()]));
    this.#writing = run.catch(() => undefined);
    return run;
  }
}

function keyOf(debt: Debt): string {
  return debt.kind === 'address' ? `${debt.driver} ${debt.poolId} ${debt.address}` : debt.endpointId;
}

/** Ignores a refusal: the plugin has answered that it does not know of this. */
export function unlessRefused(error: unknown): void {
  if (!isEngineError(error) || error.code !== PLUGIN_REFUSED) throw error;
}
