/** Contract of the network driver as containers use it. */

/** Where a sandbox on a network with names has its name server. */
export const RESOLVER_ADDRESS = '127.0.0.11';

/** One container has this on one network: it is persisted in its record and shown under NetworkSettings.Networks. */
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
  /** Link inside the container: `eth0`; '' on networks that make none. */
  readonly interfaceName: string;
  readonly aliases: readonly string[];
  readonly dnsNames: readonly string[];
  /** Other names, for this container alone, of containers on the network: alias to name. */
  readonly links: Readonly<Record<string, string>>;
  /**
   * The endpoint with the highest one is the container's way out; of equals one with
   * both address families, then the one whose network's name comes first.
   */
  readonly gatewayPriority: number;
}

/** The kernel knows an endpoint by these names. */
export type EndpointNames = Pick<Endpoint, 'endpointId' | 'interfaceName'>;

export interface PublishedPort {
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  readonly containerPort: number;
  readonly hostIp: string;
  readonly hostPort: number;
}

/** A wanted binding: hostPort 0 is any free one, hostIp '' is every address of the host. */
export interface PortRequest extends PublishedPort {
  /** Last of a range of which the first free one is taken. */
  readonly hostPortEnd?: number;
}

/** A container that another one is linked to, by its endpoint, and what it exposes. */
export interface LinkTarget {
  readonly endpoint: Endpoint;
  readonly ports: readonly { readonly protocol: PublishedPort['protocol']; readonly port: number }[];
}

export interface AttachRequest {
  /** The names of the new endpoint, if they were noted beforehand; else fresh ones are made. */
  readonly names?: EndpointNames;
  readonly containerId: string;
  /** Name or ID of a network: `bridge` for the default. */
  readonly network: string;
  readonly macAddress?: string;
  readonly ipv4?: string;
  readonly ipv6?: string;
  readonly aliases: readonly string[];
  readonly dnsNames: readonly string[];
  readonly links?: Readonly<Record<string, string>>;
  /** Name servers that the container or the daemon names; without, those of the host are asked. */
  readonly nameservers?: readonly string[];
  /** The container has no IPv6, whatever the network has. */
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
  /** As really bound: one for each address of the host. */
  readonly ports: readonly PublishedPort[];
}

export interface NetworkSubnet {
  readonly subnet: string;
  /** '' for none. */
  readonly gateway: string;
  /** Part of the subnet that containers get addresses from; '' for all of it. */
  readonly ipRange: string;
  /** Addresses that others use, by any name. */
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
  /** Containers on it find each other by name: their resolver is at RESOLVER_ADDRESS. */
  readonly hasNames: boolean;
  /** Nothing but a configuration for other networks to take over. */
  readonly configOnly: boolean;
  /** Name of the network whose configuration this one took over; '' for none. */
  readonly configFrom: string;
  readonly ipam: { readonly driver: string; readonly options: Readonly<Record<string, string>> | null };
  readonly subnets: readonly NetworkSubnet[];
  readonly options: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
}

/** A network to be made. A subnet may leave everything '' (any free one of its family is taken then). */
export type NetworkRequest = Omit<NetworkSummary, 'id' | 'created' | 'hasNames'>;

/** A network as a client asks for it. Families that it leaves open are those of the driver options. */
export type WantedNetwork = Omit<NetworkRequest, 'enableIpv4' | 'enableIpv6'> & {
  readonly enableIpv4: boolean | undefined;
  readonly enableIpv6: boolean | undefined;
};

export interface NetworkDriver {
  /** Makes the default bridge, forwarding and firewall rules as configured; adopts what is there. */
  start(): Promise<void>;
  /** Removes what this daemon made when no container uses it any more. */
  stop(): Promise<void>;
  list(): readonly NetworkSummary[];
  /**
   * Makes a network and keeps its record. Throws conflict for a name that exists, forbidden for a predefined one or a
   * subnet in use, not-found for an unknown driver, invalid for anything else that is wrong; nothing is left then.
   */
  create(request: WantedNetwork): Promise<NetworkSummary>;
  /**
   * Removes a network and says what it was. Throws not-found, forbidden for predefined ones and those with endpoints.
   */
  remove(nameOrId: string): Promise<NetworkSummary>;
  /** Full ID, then name, then ID prefix. Throws not-found `network X not found`. */
  resolve(nameOrId: string): NetworkSummary;
  /**
   * Makes a network namespace with loopback up, or takes the one of a process, and bind-mounts it. Returns its path.
   */
  createSandbox(containerId: string, pid?: number): Promise<string>;
  /** Unmounts and deletes it. Idempotent. */
  removeSandbox(containerId: string): Promise<void>;
  /** Containers that there are sandboxes of. */
  sandboxIds(): string[];
  /** Path of a live sandbox, for `container:` network mode. */
  sandboxPath(containerId: string): string;
  /** Which of these networks, by name, is the way out of a container that is on all of them; undefined when none is. */
  wayOut(networks: readonly { readonly name: string; readonly gatewayPriority: number }[]): string | undefined;
  /**
   * Returns the names that the next endpoint of a container on a network would have. Throws conflict if its options ask
   * for a name that another one has.
   */
  nameEndpoint(containerId: string, network: string, options: Readonly<Record<string, string>>): EndpointNames;
  /** Allocates addresses and ports, makes the link in the container's sandbox. On failure everything is undone. */
  attach(request: AttachRequest): Promise<AttachResult>;
  /** Frees addresses and ports; the link goes with the sandbox. Idempotent. */
  detach(containerId: string, endpoint: Endpoint): Promise<void>;
  /** As `detach`, from a sandbox that stays: the link goes at once, and another endpoint becomes the way out. */
  disconnect(containerId: string, endpoint: Endpoint): Promise<void>;
  /** Publishes ports over an endpoint that has none; all or none. Throws as `attach` does. */
  publish(endpoint: Endpoint, ports: readonly PortRequest[]): Promise<readonly PublishedPort[]>;
  /** Closes the ports of an endpoint. Idempotent. */
  unpublish(endpoint: Endpoint): Promise<void>;
  /** Where a network keeps its containers apart, these are open to an endpoint, and none that were before. */
  link(endpoint: Endpoint, targets: readonly LinkTarget[]): Promise<void>;
  /** The endpoint is known to others by its `dnsNames` from now on. Nothing happens where there are no names. */
  rename(containerId: string, endpoint: Endpoint): void;
  /**
   * Takes away what is left of an endpoint whose making or removal was cut short by a crash; the others are adopted.
   * Idempotent.
   */
  discard(containerId: string, names: EndpointNames): Promise<void>;
  /** Takes over the endpoint of a container that is still running after a restart of the daemon. */
  adopt(
    containerId: string,
    endpoint: Endpoint,
    ports: readonly PublishedPort[],
    nameservers?: readonly string[],
  ): Promise<void>;
  /** All that survived is adopted: takes away links and open ports of an earlier run that nobody has claimed. */
  settle(): Promise<void>;
  /** Addresses of the host on the default bridge; none without one. */
  hostAddresses(): readonly string[];
  /** Resolver configuration of the host as containers should see it (loopback servers dropped). */
  hostDns(): Promise<{ nameservers: string[]; search: string[]; options: string[] }>;
}
