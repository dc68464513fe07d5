/** A network that containers can be attached to, whatever its driver. */
import type { NetworkSummary } from '../ports/network.js';
import type { PluginRoute } from '../ports/network-plugin.js';
import type { Endpoint, PortRequest, PublishedPort } from '../ports/network.js';
import type { Family } from './subnet.js';
import type { UnderWay } from './under-way.js';

/** The container's end of a link. */
export interface ContainerEnd {
  readonly endpointId: string;
  /** Name of the link on the host's side, if there is one. */
  readonly hostName: string;
  /** Name of the link in the container's namespace. */
  readonly name: string;
  /** MAC address; empty: the link keeps the one that it has. */
  readonly mac: Buffer;
  /** Open descriptor of that namespace. */
  readonly netnsFd: number;
}

/** How containers get their links. */
export interface Medium {
  /** MTU of the links that it makes, in bytes. */
  readonly mtu: number;
  /**
   * Makes a link whose end is in the container's namespace and is not up yet. @throws EngineError with the errno's name
   * as code.
   */
  plug(end: ContainerEnd): Promise<void>;
}

/** How ports of containers are published. */
export interface Publishing {
  /** The bridge that the containers are connected to. */
  readonly link: string;
  /** Host address of ports that name none; '' means every address. */
  readonly address: string;
  /** In these families, ports are opened at the containers themselves and not on the host. */
  readonly routed: readonly Family[];
}

/** An address of an endpoint. */
export interface Lease {
  /** '' if the network has no address of the family. */
  readonly address: string;
  readonly prefixLength: number;
  /** '' for none. */
  readonly gateway: string;
}

/** The addresses of a network, given by the engine or by another process. */
export interface Addresses {
  /** Tells whether a MAC address must be passed to `lease`. */
  needsMac(): boolean | Promise<boolean>;
  /**
   * Takes the wanted address, or any, if possible the one that the container `owner` had last. Throws unavailable,
   * invalid or forbidden.
   */
  lease(family: Family, wanted: string | undefined, macAddress?: string, owner?: string): Lease | Promise<Lease>;
  /** Takes over an address that is in use. Throws as `lease` does. */
  adopt(family: Family, address: string, owner: string): unknown;
  /** Takes an address back; '' means none. */
  release(address: string): void;
}

/** The published ports of an endpoint. */
export interface Ports {
  readonly list: readonly PublishedPort[];
  /** Publishes all ports or none. */
  open(ports: readonly PortRequest[]): Promise<void>;
  adopt(ports: readonly PublishedPort[], containerId: string): Promise<void>;
  close(): Promise<void>;
  /**
   * Where no next process goes on with them: takes no further connections; resolves when those under way are over, and
   * keeps count of them.
   */
  rest(underWay: UnderWay): Promise<void>;
  /** Gives up what belongs to this process, such as sockets, to the next one. */
  release(): void;
}

/** The part of another process in the endpoints of a network. */
export interface EndpointPlugin {
  /**
   * Makes the endpoint, and returns it as the plugin completed it; the link's name is absent if there is no link.
   * Nothing is left when it fails.
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
  /** Ends the endpoint. Never fails: what cannot be done now is done later. */
  disconnect(containerId: string, endpoint: Endpoint): Promise<void>;
  /** Takes over an endpoint that is in use. */
  adopt(endpoint: Endpoint): void;
  routes(endpointId: string): readonly PluginRoute[];
  ports(endpoint: Endpoint): Ports;
}

export interface AttachableNetwork {
  readonly summary: NetworkSummary;
  /** Link on the host that connects its containers; '' if another process makes it. */
  readonly link: string;
  readonly space: Addresses;
  readonly medium: Medium;
  /** Absent if the engine makes the endpoints itself. */
  readonly plugin?: EndpointPlugin;
  /** Containers may choose their address, because a client has chosen the subnet. */
  readonly staticAddresses: boolean;
  /** Undefined if no port is published, because nobody gets in, or everybody does without that. */
  readonly publishing: Publishing | undefined;
  /** Containers leave by the link itself, without a gateway. */
  readonly onLink: boolean;
  /** Links of this medium have no MAC address of their own. */
  readonly sharesMac: boolean;
  /** Beginning of the names of links inside containers: `eth`. */
  readonly interfacePrefix: string;
}
