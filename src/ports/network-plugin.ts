/** Contract of network drivers and address managers that are processes of their own. */
import type { PortRequest } from './network.js';

/** A subnet of a network; `gateway` with the prefix length, '' for none. */
export interface PluginPool {
  readonly addressSpace: string;
  readonly subnet: string;
  readonly gateway: string;
  /** Addresses with the prefix length, by arbitrary names. */
  readonly auxiliaryAddresses: Readonly<Record<string, string>>;
}

export interface PluginNetworkRequest {
  readonly id: string;
  readonly options: Readonly<Record<string, string>>;
  readonly internal: boolean;
  readonly enableIpv4: boolean;
  readonly enableIpv6: boolean;
  readonly ipv4: readonly PluginPool[];
  readonly ipv6: readonly PluginPool[];
}

/** The addresses of an endpoint, with their prefix length. '' for a missing one. */
export interface PluginInterface {
  readonly ipv4: string;
  readonly ipv6: string;
  readonly macAddress: string;
}

export interface PluginRoute {
  /** An address range in CIDR form. */
  readonly destination: string;
  /** '' if the destination is on the link. */
  readonly nextHop: string;
}

export interface PluginJoin {
  /** The link in the daemon's namespace that is moved into the container; '' if the driver needs none. */
  readonly link: string;
  /** The beginning of its name in the container. */
  readonly prefix: string;
  /** Addresses; '' for none. */
  readonly gateway: string;
  readonly ipv6Gateway: string;
  readonly routes: readonly PluginRoute[];
}

/** Every call throws EngineError unavailable, deadline or internal when the driver fails it. */
export interface NetworkPlugin {
  readonly name: string;
  scope(): Promise<string>;
  createNetwork(request: PluginNetworkRequest): Promise<void>;
  deleteNetwork(networkId: string): Promise<void>;
  /**
   * Makes an endpoint. Returns what the driver has chosen where `wanted` was ''. @param options of the endpoint, as the
   * client wrote them.
   */
  createEndpoint(
    networkId: string,
    endpointId: string,
    wanted: PluginInterface,
    ports: readonly PortRequest[],
    options: Readonly<Record<string, string>>,
  ): Promise<PluginInterface>;
  deleteEndpoint(networkId: string, endpointId: string): Promise<void>;
  join(networkId: string, endpointId: string, sandboxPath: string, ports: readonly PortRequest[]): Promise<PluginJoin>;
  leave(networkId: string, endpointId: string): Promise<void>;
  /** Makes the endpoint the container's way out, with these ports leading to it, until `revoke`. */
  program(networkId: string, endpointId: string, ports: readonly PortRequest[]): Promise<void>;
  revoke(networkId: string, endpointId: string): Promise<void>;
}

export interface AddressPool {
  readonly id: string;
  /** An address range in CIDR form. */
  readonly subnet: string;
  /** The manager's own gateway; '' if it has none. */
  readonly gateway: string;
}

export interface AddressPlugin {
  readonly name: string;
  capabilities(): Promise<{ readonly requiresMac: boolean; readonly requiresReplay: boolean }>;
  addressSpace(): Promise<string>;
  /** Asks for a subnet; '' for `subnet` or `range` means any. */
  requestPool(request: {
    readonly addressSpace: string;
    readonly subnet: string;
    readonly range: string;
    readonly options: Readonly<Record<string, string>>;
    readonly isIpv6: boolean;
  }): Promise<AddressPool>;
  releasePool(poolId: string): Promise<void>;
  /** Asks for an address; '' means any. Returns it with its prefix length. */
  requestAddress(
    poolId: string,
    address: string,
    purpose: { readonly gateway?: true; readonly macAddress?: string },
  ): Promise<string>;
  releaseAddress(poolId: string, address: string): Promise<void>;
}

export interface NetworkPlugins {
  /** Finds a driver. @throws EngineError not-found `plugin "X" not found`; others when it does not answer. */
  network(name: string): Promise<NetworkPlugin>;
  addresses(name: string): Promise<AddressPlugin>;
  /** Names of network drivers that have answered so far. */
  readonly known: readonly string[];
}
