/** What containers are attached to, whatever driver the network has. */
import type { NetworkSummary } from '../ports/network.js';
import type { PluginRoute } from '../ports/network-plugin.js';
import type { Endpoint, PortRequest, PublishedPort } from '../ports/network.js';
import type { Family } from './subnet.js';

/** The container's end of a link. */
export interface ContainerEnd {
  readonly endpointId: string;
  /** Of the link on the host's side, where there is one. */
  readonly hostName: string;
  /** Of the link in the container's namespace. */
  readonly name: string;
  /** Empty: the link keeps the one that it has. */
  readonly mac: Buffer;
  /** Open descriptor of that namespace. */
  readonly netnsFd: number;
}

/** How containers get their links. */
export interface Medium {
  /** Of the links that it makes, in bytes. */
  readonly mtu: number;
  /** Makes a link whose end is in the container's namespace, not up yet. @throws EngineError code of the errno. */
  plug(end: ContainerEnd): Promise<void>;
}

/** How ports of containers are published. */
export interface Publishing {
  /** Bridge that the containers are behind. */
  readonly link: string;
  /** Host address of ports that name none; '' is every one. */
  readonly address: string;
  /** Families in which the containers' own ports are opened, and none of the host's. */
  readonly routed: readonly Family[];
}

/** An address of an endpoint. */
export interface Lease {
  /** '' where the network has none of the family. */
  readonly address: string;
  readonly prefixLength: number;
  /** '' for nowhere. */
  readonly gateway: string;
}

/** Addresses of a network, its own or another process's. */
export interface Addresses {
  /** The MAC address is to be known before an address is asked for. */
  needsMac(): boolean | Promise<boolean>;
  /** An address, the wanted one or any. Throws unavailable, invalid or forbidden. */
  lease(family: Family, wanted: string | undefined, macAddress?: string): Lease | Promise<Lease>;
  /** Takes over an address that is in use. Throws as `lease` does. */
  adopt(family: Family, address: string): unknown;
  /** Takes an address back; '' is none. */
  release(address: string): void;
}

/** The published ports of an endpoint. */
export interface Ports {
  readonly list: readonly PublishedPort[];
  /** All or none. */
  open(ports: readonly PortRequest[]): Promise<void>;
  adopt(ports: readonly PublishedPort[], containerId: string): Promise<void>;
  close(): Promise<void>;
  /** Gives up what is this process's own. */
  release(): void;
}

/** What another process does for the endpoints of a network. */
export interface EndpointPlugin {
  /**
   * Makes the endpoint; gives it back as the plugin completed it, without a link's name where there is no link. Nothing
   * is left when it fails.
   */
  connect(
    draft: Endpoint,
    place: {
      readonly sandboxPath: string;
      readonly ports: readonly PortRequest[];
      readonly options: Readonly<Record<string, string>>;
      readonly nameLink: (prefix: string) => string;
    },
  ): Promise<Endpoint>;
  /** Ends it. Never fails: what cannot be done now is made up for. */
  disconnect(containerId: string, endpoint: Endpoint): Promise<void>;
  /** Takes over one that is in use. */
  adopt(endpoint: Endpoint): void;
  routes(endpointId: string): readonly PluginRoute[];
  ports(endpoint: Endpoint): Ports;
}

export interface AttachableNetwork {
  readonly summary: NetworkSummary;
  /** Link on the host that its containers are connected through; '' where another process makes it. */
  readonly link: string;
  readonly space: Addresses;
  readonly medium: Medium;
  /** Absent where the engine makes the endpoints by itself. */
  readonly plugin?: EndpointPlugin;
  /** Containers may choose their address: a client has chosen the subnet. */
  readonly staticAddresses: boolean;
  /** Undefined where no port is published: nobody gets in, or everybody is there without. */
  readonly publishing: Publishing | undefined;
  /** The link itself is the way out: there is no gateway to go through. */
  readonly onLink: boolean;
  /** Links of this medium have no MAC address of their own. */
  readonly sharesMac: boolean;
  /** Of the names of links inside containers: `eth`. */
  readonly interfacePrefix: string;
}
