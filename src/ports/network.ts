/** Contract of the network driver as containers use it. */

/** The name server of a sandbox on a network with names has this address. */
export const RESOLVER_ADDRESS = '127.0.0.11';

/**
 * The connection of one container to one network. It is persisted in the container's record and shown under
 * NetworkSettings.Networks.
 */
export interface Endpoint {
  readonly networkId: string;
  readonly networkName: string;
  /** 64 hex digits. */
  readonly endpointId: string;
  readonly macAddress: string;
  readonly ipv4: string;
  readonly ipv4PrefixLength: number;
  readonly gateway: string;
  readonly ipv6: string;
  readonly ipv6PrefixLength: number;
  readonly ipv6Gateway: string;
  /** Name of the link inside the container: `eth0`; '' on networks that make no links. */
  readonly interfaceName: string;
  readonly aliases: readonly string[];
  readonly dnsNames: readonly string[];
  /** Names that only this container has for others on the network: alias to name. */
  readonly links: Readonly<Record<string, string>>;
  /**
   * The endpoint with the highest priority is the container's way out; among equals one with both address families,
   * then the one whose network's name comes first.
   */
  readonly gatewayPriority: number;
  /** False where ports are neither published nor shown, as on a link of the host. Absent in older records. */
  readonly showsPorts?: boolean;
}

/** The kernel knows an endpoint by these names. */
export type EndpointNames = Pick<Endpoint, 'endpointId' | 'interfaceName'>;

export interface PublishedPort {
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  readonly containerPort: number;
  readonly hostIp: string;
  readonly hostPort: number;
}

/** A wanted binding: hostPort 0 means any free one, hostIp '' every address of the host. */
export interface PortRequest extends PublishedPort {
  /** The end of a range of which the first free port is taken. */
  readonly hostPortEnd?: number;
}

/** A container that another one is linked to, by its endpoint, and what it exposes. */
export interface LinkTarget {
  readonly endpoint: Endpoint;
  readonly ports: readonly { readonly protocol: PublishedPort['protocol']; readonly port: number }[];
}

export interface AttachRequest {
  /** Names that were noted for the new endpoint beforehand; if absent, new ones are made. */
  readonly names?: EndpointNames;
  readonly containerId: string;
  /** Name or ID of a network; `bridge` means the default one. */
  readonly network: string;
  readonly macAddress?: string;
  readonly ipv4?: string;
  readonly ipv6?: string;
  readonly aliases: readonly string[];
  readonly dnsNames: readonly string[];
  readonly links?: Readonly<Record<string, string>>;
  /** Name servers that the container or the daemon names; if absent, the host's are asked. */
  readonly nameservers?: readonly string[];
  /** If true, the container has no IPv6, whatever the network has. */
  readonly withoutIpv6?: boolean;
  /** Addresses of the link besides those of the network. */
  readonly linkLocalAddresses?: readonly string[];
  /** `DriverOpts` of the endpoint. */
  readonly options?: Readonly<Record<string, string>>;
  /** 0 when absent. */
  readonly gatewayPriority?: number;
  readonly ports: readonly PortRequest[];
}

export interface AttachResult {
  readonly endpoint: Endpoint;
  /** The ports as really bound, one for each address of the host. */
  readonly ports: readonly PublishedPort[];
}

export interface NetworkSubnet {
  readonly subnet: string;
  /** '' for none. */
  readonly gateway: string;
  /** The part of the subnet that containers get addresses from; '' for all of it. */
  readonly ipRange: string;
  /** Addresses that others use, by arbitrary names. */
  readonly auxiliaryAddresses: Readonly<Record<string, string>>;
}

export interface NetworkSummary {
  readonly id: string;
  readonly name: string;
  readonly driver: string;
  readonly created: string;
  readonly internal: boolean;
  readonly attachable: boolean;
  readonly enableIpv4: boolean;
  readonly enableIpv6: boolean;
  /** If true, its containers find each other by name: their resolver is at RESOLVER_ADDRESS. */
  readonly hasNames: boolean;
  /** If true, the network is only a configuration for other networks to take over. */
  readonly configOnly: boolean;
  /** Name of the network whose configuration this one took over; '' for none. */
  readonly configFrom: string;
  readonly ipam: { readonly driver: string; readonly options: Readonly<Record<string, string>> | null };
  readonly subnets: readonly NetworkSubnet[];
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
}

/** A network to be made. A subnet may have '' in all members; then any free one of its family is taken. */
export type NetworkRequest = Omit<NetworkSummary, 'id' | 'created' | 'hasNames'>;

/** A network as a client asks for it. If it does not name families, the driver options decide. */
export type WantedNetwork = Omit<NetworkRequest, 'enableIpv4' | 'enableIpv6'> & {
  readonly enableIpv4: boolean | undefined;
  readonly enableIpv6: boolean | undefined;
};

/** How long connections that are under way are waited for. */
export interface RestLimits {
  /** So long while none of them ends, and none waits to be taken by its container. */
  readonly quietMs: number;
  /** So long in all. */
  readonly limitMs: number;
}

export interface NetworkDriver {
  /** Makes the default bridge, forwarding and firewall rules as configured; takes over what exists. */
  start(): Promise<void>;
  /**
   * Where no next daemon goes on with published ports, lets them take no further connections, and waits for those under
   * way.
   */
  rest(limits: RestLimits): Promise<void>;
  /**
   * Removes what this daemon made and no container uses any more. Published ports and their connections are the next
   * daemon's from now on.
   */
  stop(): Promise<void>;
  list(): readonly NetworkSummary[];
  /**
   * Makes a network and keeps its record. If it throws, nothing is left: conflict for a name that exists, forbidden for
   * a predefined name or a subnet in use, not-found for an unknown driver, invalid for other faults.
   */
  create(request: WantedNetwork): Promise<NetworkSummary>;
  /**
   * Removes a network and returns its summary. Throws not-found; forbidden for predefined networks and those with
   * endpoints.
   */
  remove(nameOrId: string): Promise<NetworkSummary>;
  /** Finds a network by full ID, then name, then ID prefix. Throws not-found `network X not found`. */
  resolve(nameOrId: string): NetworkSummary;
  /**
   * Makes a network namespace with loopback up, or takes the one of a process, and bind-mounts it. Returns its path.
   */
  createSandbox(containerId: string, pid?: number): Promise<string>;
  /** Unmounts and deletes a sandbox. Idempotent. */
  removeSandbox(containerId: string): Promise<void>;
  /** Returns the IDs of the containers that have a sandbox. */
  sandboxIds(): string[];
  /** Returns the path of a live sandbox, for `container:` network mode. */
  sandboxPath(containerId: string): string;
  /** Returns which of these networks is the way out of a container that is on all of them; undefined when none is. */
  wayOut(networks: readonly { readonly name: string; readonly gatewayPriority: number }[]): string | undefined;
  /**
   * Returns the names that the next endpoint of a container on a network would have. Throws conflict if its options ask
   * for a name that another endpoint has.
   */
  nameEndpoint(containerId: string, network: string, options: Readonly<Record<string, string>>): EndpointNames;
  /** Allocates addresses and ports, and makes the link in the container's sandbox. On failure everything is undone. */
  attach(request: AttachRequest): Promise<AttachResult>;
  /** Frees addresses and ports; the link goes with the sandbox. Idempotent. */
  detach(containerId: string, endpoint: Endpoint): Promise<void>;
  /**
   * Does the same as `detach` in a sandbox that stays: the link goes at once, and another endpoint becomes the way out.
   */
  disconnect(containerId: string, endpoint: Endpoint): Promise<void>;
  /** Publishes ports over an endpoint that has none; all or none. Throws as `attach` does. */
  publish(endpoint: Endpoint, ports: readonly PortRequest[]): Promise<readonly PublishedPort[]>;
  /** Closes the ports of an endpoint. Idempotent. */
  unpublish(endpoint: Endpoint): Promise<void>;
  /**
   * Sets the targets that are open to an endpoint, in place of those before, on a network that keeps its containers
   * apart.
   */
  link(endpoint: Endpoint, targets: readonly LinkTarget[]): Promise<void>;
  /**
   * Replaces the names by which others know the endpoint by its `dnsNames`. Does nothing on a network without names.
   */
  rename(containerId: string, endpoint: Endpoint): void;
  /** Removes what is left of an endpoint whose making or removal was cut short by a crash. Idempotent. */
  discard(containerId: string, names: EndpointNames): Promise<void>;
  /** Takes over the endpoint of a container that is still running after a restart of the daemon. */
  adopt(
    containerId: string,
    endpoint: Endpoint,
    ports: readonly PublishedPort[],
    nameservers?: readonly string[],
  ): Promise<void>;
  /** Removes links and open ports of an earlier run that nobody has claimed. Call it when all survivors are adopted. */
  settle(): Promise<void>;
  /** Returns the addresses of the host on the default bridge; none if there is no such bridge. */
  hostAddresses(): readonly string[];
  /** Returns the resolver configuration of the host as containers should see it (loopback servers dropped). */
  hostDns(): Promise<{ nameservers: string[]; search: string[]; options: string[] }>;
}
