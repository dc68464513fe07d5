/** What containers are attached to, whatever driver the network has. */
import type { NetworkSummary } from '../ports/network.js';
import type { AddressSpace } from './address-space.js';

/** The container's end of a link. */
export interface ContainerEnd {
  /** Of the link on the host's side, where there is one. */
  readonly hostName: string;
  /** Of the link in the container's namespace. */
  readonly name: string;
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
}

export interface AttachableNetwork {
  readonly summary: NetworkSummary;
  /** Link on the host that its containers are connected through. */
  readonly link: string;
  readonly space: AddressSpace;
  readonly medium: Medium;
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
