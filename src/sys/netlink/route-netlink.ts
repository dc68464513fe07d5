/** rtnetlink(7): links, addresses and routes without spawning `ip`. */
import { EngineError, notFound } from '../../errors/engine-error.js';
import { addressBytes, addressText } from '../net/ip-address.js';
import { libc } from '../ffi/libc.js';
import {
  attribute,
  attributesOf,
  nestedAttribute,
  NLM_F_CREATE,
  NLM_F_DUMP,
  NLM_F_EXCL,
  NLM_F_REPLACE,
  textAttribute,
  u16Attribute,
  u32Attribute,
  u8Attribute,
  type NetlinkMessage,
} from './netlink-wire.js';
import { NETLINK_ROUTE, NetlinkSocket } from './netlink-socket.js';

// linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/if.h, linux/sockios.h
const RTM = {
  newLink: 16,
  deleteLink: 17,
  getLink: 18,
  newAddress: 20,
  deleteAddress: 21,
  getAddress: 22,
  newRoute: 24,
  getRoute: 26,
} as const;
const IFLA = { address: 1, name: 3, mtu: 4, link: 5, master: 10, linkInfo: 18, netnsFd: 28 } as const;
const INFO = { kind: 1, data: 2, slaveKind: 4, slaveData: 5 } as const;
const BRIDGE_PORT = { hairpin: 4, isolated: 33 } as const;
const VETH_PEER = 1;
const VLAN_ID = 1;
const MACVLAN_MODE = 1;
const IPVLAN = { mode: 1, flags: 2 } as const;
const IFA = { address: 1, local: 2, broadcast: 4, flags: 8 } as const;
/** No duplicate address detection: addresses are ours to give, and nothing may wait a second for them. */
const IFA_F_NODAD = 2;
const RTA = { destination: 1, oif: 4, gateway: 5, table: 15 } as const;
const RT_TABLE_MAIN = 254;
const RTPROT_BOOT = 3;
const RT_SCOPE_LINK = 253;
const RTN_UNICAST = 1;
const IFF_UP = 1;
const AF_INET = 2;
const AF_INET6 = 10;
/** Below, the kernel has no IPv6 on a link, and refuses what would configure it. */
export const IPV6_MIN_MTU = 1280;
const SIOCGIFINDEX = 0x8933;
const IFREQ_BYTES = 40;
const IFNAME_BYTES = 16;

const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);

export interface Link {
  readonly index: number;
  readonly name: string;
  /** With colons; '' for a link that has none. */
  readonly mac: string;
  readonly mtu: number;
  /** `bridge`, `veth`, …; '' for hardware. */
  readonly kind: string;
  /** Index of the bridge that it is a port of, 0 without. */
  readonly master: number;
}

export interface LinkAddress {
  readonly ip: string;
  readonly prefixLength: number;
}

export interface Route {
  readonly destination: LinkAddress;
  readonly linkIndex: number;
}

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

  /** After what is under way. Idempotent. */
  close(): void {
    this.#socket.close();
  }

  /**
   * A bridge that is down, so that its parameters can be set first. Its MAC address is fixed: else it would follow its
   * ports, and peers would lose it whenever a container comes or goes.
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

  /** A pair: this end up and in the bridge, the peer in another namespace under its own name. Both or none. */
  async createVeth({ name, bridgeIndex, hairpin, isolated, mtu, peer }: VethOptions): Promise<void> {
    const portFlags = [
      ...(hairpin ? [u8Attribute(BRIDGE_PORT.hairpin, 1)] : []),
      ...(isolated ? [u8Attribute(BRIDGE_PORT.isolated, 1)] : []),
    ];
    await this.#socket.request([
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
    ]);
  }

  /**
   * A link on top of another one, made in another namespace. ipvlan has its parent's MAC address.
   * @throws EngineError code EOPNOTSUPP without the kernel module, EBUSY where the parent carries another kind.
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

  /** A link that leads nowhere, up. @throws EngineError code EOPNOTSUPP without the kernel module. */
  async createDummy(name: string): Promise<void> {
    await this.#socket.request([
      newLink(NLM_F_CREATE | NLM_F_EXCL, linkHeader(0, true), [
        textAttribute(IFLA.name, name),
        nestedAttribute(IFLA.linkInfo, [textAttribute(INFO.kind, 'dummy')]),
      ]),
    ]);
  }

  /** One VLAN of a link, up. @throws EngineError code EOPNOTSUPP without the kernel module. */
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
      // Those on the link first: gateways may be found by them.
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

  /** Index of a link; undefined when there is none. Microseconds. */
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

function newLink(flags: number, header: Buffer, attributes: readonly Buffer[]): NetlinkMessage {
  return { type: RTM.newLink, flags, body: Buffer.concat([header, ...attributes]) };
}

/** Reads the attributes of a port of a bridge. */
function portAttributes(attributes: readonly Buffer[]): Buffer {
  return nestedAttribute(IFLA.linkInfo, [
    textAttribute(INFO.slaveKind, 'bridge'),
    nestedAttribute(INFO.slaveData, attributes),
  ]);
}

function linkHeader(index: number, up: boolean): Buffer {
  const header = Buffer.alloc(16);
  header.writeInt32LE(index, 4);
  if (up) {
    header.writeUInt32LE(IFF_UP, 8);
    header.writeUInt32LE(IFF_UP, 12);
  }
  return header;
}

function peerAttributes({ name, mac, netnsFd }: PeerOptions): Buffer[] {
  return [textAttribute(IFLA.name, name), attribute(IFLA.address, mac), u32Attribute(IFLA.netnsFd, netnsFd)];
}

function addressMessage(type: number, flags: number, index: number, { ip, prefixLength }: LinkAddress): NetlinkMessage {
  const bytes = addressBytes(ip);
  const header = Buffer.alloc(8);
  header[0] = familyOf(bytes);
  header[1] = prefixLength;
  header.writeUInt32LE(index, 4);
  const attributes = [attribute(IFA.local, bytes), attribute(IFA.address, bytes)];
  if (bytes.length === 16) attributes.push(u32Attribute(IFA.flags, IFA_F_NODAD));
  else if (prefixLength < 31) {
    const broadcast = Buffer.alloc(4);
    broadcast.writeUInt32BE((bytes.readUInt32BE(0) | (0xffff_ffff >>> prefixLength)) >>> 0);
    attributes.push(attribute(IFA.broadcast, broadcast));
  }
  return { type, flags, body: Buffer.concat([header, ...attributes]) };
}

function unspecified(ip: string): string {
  return ip.includes(':') ? '::' : '0.0.0.0';
}

/** A route in place of another to the same destination: without one the default route. */
function routeMessage(index: number, gateway: string, destination?: LinkAddress): NetlinkMessage {
  const bytes = addressBytes(gateway);
  const isAny = bytes.every((byte) => byte === 0);
  const header = Buffer.alloc(12);
  header[0] = familyOf(bytes);
  header[1] = destination?.prefixLength ?? 0;
  header[4] = RT_TABLE_MAIN;
  header[5] = RTPROT_BOOT;
  header[6] = isAny ? RT_SCOPE_LINK : 0;
  header[7] = RTN_UNICAST;
  return {
    type: RTM.newRoute,
    flags: NLM_F_CREATE | NLM_F_REPLACE,
    body: Buffer.concat([
      header,
      ...(destination ? [attribute(RTA.destination, addressBytes(destination.ip))] : []),
      ...(isAny ? [] : [attribute(RTA.gateway, bytes)]),
      u32Attribute(RTA.oif, index),
    ]),
  };
}

function familyOf(bytes: Buffer): number {
  return bytes.length === 4 ? AF_INET : AF_INET6;
}

function parseLink(payload: Buffer): Link {
  const link = { index: payload.readInt32LE(4), name: '', mac: '', mtu: 0, kind: '', master: 0 };
  for (const [type, value] of attributesOf(payload, 16)) {
    if (type === IFLA.name) link.name = cText(value);
    else if (type === IFLA.address) link.mac = value.toString('hex').replaceAll(/(..)(?=.)/g, '$1:');
    else if (type === IFLA.mtu) link.mtu = value.readUInt32LE(0);
    else if (type === IFLA.master) link.master = value.readUInt32LE(0);
    else if (type === IFLA.linkInfo) {
      for (const [inner, kind] of attributesOf(value, 0)) if (inner === INFO.kind) link.kind = cText(kind);
    }
  }
  return link;
}

function cText(value: Buffer): string {
  return value.toString('latin1', 0, value.length - 1);
}

function parseAddress(payload: Buffer): (LinkAddress & { readonly linkIndex: number })[] {
  const found = new Map(attributesOf(payload, 8));
  // IPv6 has no local address apart from point-to-point links.
  const bytes = found.get(IFA.local) ?? found.get(IFA.address);
  return bytes ? [{ linkIndex: payload.readUInt32LE(4), ip: addressText(bytes), prefixLength: payload[1] ?? 0 }] : [];
}

function parseRoute(payload: Buffer): Route[] {
  const found = new Map(attributesOf(payload, 12));
  const destination = found.get(RTA.destination);
  const table = found.get(RTA.table)?.readUInt32LE(0) ?? payload[4];
  const linkIndex = found.get(RTA.oif)?.readUInt32LE(0) ?? 0;
  return destination && table === RT_TABLE_MAIN
    ? [{ destination: { ip: addressText(destination), prefixLength: payload[1] ?? 0 }, linkIndex }]
    : [];
}
