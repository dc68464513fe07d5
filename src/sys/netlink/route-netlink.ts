/** rtnetlink(7): links, addresses and routes without spawning `ip`. */
import { EngineError, notFound } from '../../errors/engine-error.js';
import { libc } from '../ffi/libc.js';
import {
  attribute,
  nestedAttribute,
  NLM_F_CREATE,
  NLM_F_DUMP,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  textAttribute,
  u16Attribute,
  u32Attribute,
  u8Attribute,
} from './netlink-wire.js';
import { NETLINK_ROUTE, NetlinkSocket } from './netlink-socket.js';
import {
  addressMessage,
  AF_INET6,
  IFLA,
  INET6,
  INFO,
  linkHeader,
  newLink,
  parseAddress,
  parseLink,
  parseRoute,
  routeMessage,
  RTM,
  type Link,
  type LinkAddress,
  type Route,
} from './route-messages.js';

export type { Link, LinkAddress, Route } from './route-messages.js';

// linux/if_link.h, linux/sockios.h
const BRIDGE_PORT = { hairpin: 4, isolated: 33 } as const;
const VETH_PEER = 1;
const VLAN_ID = 1;
const MACVLAN_MODE = 1;
const IPVLAN = { mode: 1, flags: 2 } as const;
/** Below, the kernel has no IPv6 on a link, and refuses what would configure it. */
export const IPV6_MIN_MTU = 1280;
const SIOCGIFINDEX = 0x8933;
const IFREQ_BYTES = 40;
const IFNAME_BYTES = 16;

const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);

export interface VethOptions {
  readonly name: string;
  readonly bridgeIndex: number;
  /** The bridge may send frames back where they came from. */
  readonly hairpin: boolean;
  /** Frames of this port reach the host, but no other port that is isolated. */
  readonly isolated: boolean;
  readonly mtu: number;
  readonly peer: PeerOptions;
}

export interface BridgeLinkOptions {
  readonly name: string;
  readonly mac: Buffer;
  readonly mtu: number;
}

export interface PeerOptions {
  readonly name: string;
  readonly mac: Buffer;
  /** Open descriptor of the network namespace that it is made in. */
  readonly netnsFd: number;
}

export type StackKind = 'macvlan' | 'ipvlan';

export const MACVLAN_MODES: Readonly<Record<string, number>> = { private: 1, vepa: 2, bridge: 4, passthru: 8 };
export const IPVLAN_MODES: Readonly<Record<string, number>> = { l2: 0, l3: 1, l3s: 2 };
export const IPVLAN_FLAGS: Readonly<Record<string, number>> = { bridge: 0, private: 1, vepa: 2 };

export interface StackedOptions extends PeerOptions {
  readonly kind: StackKind;
  readonly parentIndex: number;
  readonly mode: number;
  /** This flag is for ipvlan. */
  readonly flag: number;
}

export interface Configuration {
  readonly addresses: readonly LinkAddress[];
  /** Default routes, one for a family; `::` or `0.0.0.0` is the link itself. */
  readonly gateways: readonly string[];
  readonly routes?: readonly LinkRoute[];
}

export interface LinkRoute {
  readonly destination: LinkAddress;
  /** '' where the destination is on the link. */
  readonly nextHop: string;
}

/** Belongs for ever to the network namespace that the thread was in when it was made. */
export class Netlink {
  readonly #socket = new NetlinkSocket(NETLINK_ROUTE);

  /** Closes the socket after the work under way. Idempotent. */
  close(): void {
    this.#socket.close();
  }

  /**
   * Makes a bridge that is down, so that its parameters can be set first. Its MAC address is fixed: else it would
   * follow its ports, and peers would lose it whenever a container comes or goes.
   * @throws EngineError code EEXIST, EPERM, EOPNOTSUPP without the kernel module.
   */
  async createBridge({ name, mac, mtu }: BridgeLinkOptions): Promise<void> {
    await this.#socket.request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, false), [
        textAttribute(IFLA.name, name),
        attribute(IFLA.address, mac),
        u32Attribute(IFLA.mtu, mtu),
        nestedAttribute(IFLA.linkInfo, [textAttribute(INFO.kind, 'bridge')]),
      ]),
    ]);
  }

  /**
   * Makes a pair: this end is up and in the bridge, the peer in another namespace under its own name. Both or none.
   * This end has no address, not even one of IPv6 that the kernel makes for a link.
   */
  async createVeth({ name, bridgeIndex, hairpin, isolated, mtu, peer }: VethOptions): Promise<void> {
    const portFlags = [
      ...(hairpin ? [u8Attribute(BRIDGE_PORT.hairpin, 1)] : []),
      ...(isolated ? [u8Attribute(BRIDGE_PORT.isolated, 1)] : []),
    ];
    await this.#socket
      .request([
        newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, true), [
          textAttribute(IFLA.name, name),
          u32Attribute(IFLA.mtu, mtu),
          u32Attribute(IFLA.master, bridgeIndex),
          nestedAttribute(IFLA.linkInfo, [
            textAttribute(INFO.kind, 'veth'),
            nestedAttribute(INFO.data, [
              attribute(
                VETH_PEER,
                Buffer.concat([linkHeader(0, false), ...peerAttributes(peer), u32Attribute(IFLA.mtu, mtu)]),
              ),
            ]),
          ]),
        ]),
        ...(portFlags.length === 0
          ? []
          : [newLink(0, linkHeader(0, false), [textAttribute(IFLA.name, name), portAttributes(portFlags)])]),
        // The kernel would make it when the peer is up.
        newLink(0, linkHeader(0, false), [textAttribute(IFLA.name, name), NO_IPV6_ADDRESS]),
      ])
      .catch(unless('EAFNOSUPPORT'));
  }

  /**
   * Makes a link on top of another one, in another namespace. ipvlan has its parent's MAC address.
   * @throws EngineError code EOPNOTSUPP without the kernel module, EBUSY when the parent carries another kind.
   */
  async createStacked({ kind, parentIndex, mode, flag, name, mac, netnsFd }: StackedOptions): Promise<void> {
    const isMacvlan = kind === 'macvlan';
    await this.#socket.request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, false), [
        textAttribute(IFLA.name, name),
        u32Attribute(IFLA.link, parentIndex),
        u32Attribute(IFLA.netnsFd, netnsFd),
        ...(isMacvlan ? [attribute(IFLA.address, mac)] : []),
        nestedAttribute(IFLA.linkInfo, [
          textAttribute(INFO.kind, kind),
          nestedAttribute(
            INFO.data,
            isMacvlan
              ? [u32Attribute(MACVLAN_MODE, mode)]
              : [u16Attribute(IPVLAN.mode, mode), u16Attribute(IPVLAN.flags, flag)],
          ),
        ]),
      ]),
    ]);
  }

  /** Makes a link that leads nowhere, and is up. @throws EngineError code EOPNOTSUPP without the kernel module. */
  async createDummy(name: string): Promise<void> {
    await this.#socket.request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, true), [
        textAttribute(IFLA.name, name),
        nestedAttribute(IFLA.linkInfo, [textAttribute(INFO.kind, 'dummy')]),
      ]),
    ]);
  }

  /** Makes one VLAN of a link, and raises it. @throws EngineError code EOPNOTSUPP without the kernel module. */
  async createVlan(name: string, parentIndex: number, id: number): Promise<void> {
    await this.#socket.request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, true), [
        textAttribute(IFLA.name, name),
        u32Attribute(IFLA.link, parentIndex),
        nestedAttribute(IFLA.linkInfo, [
          textAttribute(INFO.kind, 'vlan'),
          nestedAttribute(INFO.data, [u16Attribute(VLAN_ID, id)]),
        ]),
      ]),
    ]);
  }

  /** Raises a link and gives it addresses and default routes (replacing others), in one round trip. */
  async configure(index: number, { addresses, gateways, routes = [] }: Configuration): Promise<void> {
    await this.#socket.request([
      newLink(0, linkHeader(index, true), []),
      ...addresses.map((address) => addressMessage(RTM.newAddress, NLM_F_CREATE | NLM_F_REPLACE, index, address)),
      // The routes on the link come first, because gateways may be found by them.
      ...routes
        .toSorted((a, b) => a.nextHop.length - b.nextHop.length)
        .map(({ destination, nextHop }) => routeMessage(index, nextHop || unspecified(destination.ip), destination)),
      ...gateways.map((gateway) => routeMessage(index, gateway)),
    ]);
  }

  /**
   * Moves a link into another namespace, where it is down, under another name. @throws EngineError not-found when there
   * is none.
   */
  async moveLink(from: string, { name, mac, netnsFd }: PeerOptions): Promise<void> {
    const index = this.indexOf(from);
    if (index === undefined) throw notFound(`there is no link ${from}`);
    await this.#socket.request([
      newLink(0, linkHeader(index, false), [
        u32Attribute(IFLA.netnsFd, netnsFd),
        textAttribute(IFLA.name, name),
        ...(mac.length === 0 ? [] : [attribute(IFLA.address, mac)]),
      ]),
    ]);
  }

  /**
   * Separates a port of a bridge from the others that are separated, or lets go of it. @throws EngineError code ENODEV.
   */
  async isolatePort(name: string, isolated: boolean): Promise<void> {
    await this.#socket.request([
      newLink(0, linkHeader(0, false), [
        textAttribute(IFLA.name, name),
        portAttributes([u8Attribute(BRIDGE_PORT.isolated, isolated ? 1 : 0)]),
      ]),
    ]);
  }

  async setMtu(index: number, mtu: number): Promise<void> {
    await this.#socket.request([newLink(0, linkHeader(index, false), [u32Attribute(IFLA.mtu, mtu)])]);
  }

  async removeAddress(index: number, address: LinkAddress): Promise<void> {
    await this.#socket.request([addressMessage(RTM.deleteAddress, 0, index, address)]).catch(unless('EADDRNOTAVAIL'));
  }

  /** Deletes links by name, in one round trip; those that are not there are left out. */
  async deleteLinks(names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    await this.#socket
      .request(
        names.map((name) => ({
          type: RTM.deleteLink,
          flags: 0,
          body: Buffer.concat([linkHeader(0, false), textAttribute(IFLA.name, name)]),
        })),
      )
      .catch(unless('ENODEV'));
  }

  /** Returns the index of a link, within microseconds; undefined when there is none. */
  indexOf(name: string): number | undefined {
    const request = Buffer.alloc(IFREQ_BYTES);
    request.write(name, 0, IFNAME_BYTES - 1, 'latin1');
    return ioctl(this.#socket.fd, SIOCGIFINDEX, request) < 0 ? undefined : request.readInt32LE(IFNAME_BYTES);
  }

  /** All links of the namespace. */
  async links(): Promise<Link[]> {
    const answers = await this.#socket.request([{ type: RTM.getLink, flags: NLM_F_DUMP, body: linkHeader(0, false) }]);
    return answers.filter(({ type }) => type === RTM.newLink).map(({ payload }) => parseLink(payload));
  }

  /** All addresses of the namespace, those of links that are down, too. */
  async addresses(): Promise<(LinkAddress & { readonly linkIndex: number })[]> {
    const answers = await this.#socket.request([{ type: RTM.getAddress, flags: NLM_F_DUMP, body: Buffer.alloc(8) }]);
    return answers.filter(({ type }) => type === RTM.newAddress).flatMap(({ payload }) => parseAddress(payload));
  }

  /** Routes of the main table with a destination: not the default routes. */
  async routes(): Promise<Route[]> {
    const answers = await this.#socket.request([{ type: RTM.getRoute, flags: NLM_F_DUMP, body: Buffer.alloc(12) }]);
    return answers.filter(({ type }) => type === RTM.newRoute).flatMap(({ payload }) => parseRoute(payload));
  }
}

function unless(code: string): (error: unknown) => void {
  return (error) => {
    if (!(error instanceof EngineError) || error.code !== code) throw error;
  };
}

/** It is refused by a kernel without IPv6, and for a link whose MTU is too small for it. */
const NO_IPV6_ADDRESS = nestedAttribute(IFLA.afSpec, [
  nestedAttribute(AF_INET6, [u8Attribute(INET6.addressMode, INET6.noAddress)]),
]);

/** The attributes of a link as a port of a bridge. */
function portAttributes(attributes: readonly Buffer[]): Buffer {
  return nestedAttribute(IFLA.linkInfo, [
    textAttribute(INFO.slaveKind, 'bridge'),
    nestedAttribute(INFO.slaveData, attributes),
  ]);
}

function peerAttributes({ name, mac, netnsFd }: PeerOptions): Buffer[] {
  return [textAttribute(IFLA.name, name), attribute(IFLA.address, mac), u32Attribute(IFLA.netnsFd, netnsFd)];
}

function unspecified(ip: string): string {
  return ip.includes(':') ? '::' : '0.0.0.0';
}
