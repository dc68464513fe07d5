/** The messages of rtnetlink(7): how links, addresses and routes are written for the kernel, and read from it. */
import { addressBytes, addressText } from '../net/ip-address.js';
import {
  attribute,
  attributesOf,
  NLM_F_CREATE,
  NLM_F_REPLACE,
  u32Attribute,
  type NetlinkMessage,
} from './netlink-wire.js';

// linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/if.h
export const RTM = {
  newLink: 16,
  deleteLink: 17,
  getLink: 18,
  newAddress: 20,
  deleteAddress: 21,
  getAddress: 22,
  newRoute: 24,
  getRoute: 26,
} as const;
export const IFLA = {
  address: 1,
  name: 3,
  mtu: 4,
  link: 5,
  master: 10,
  linkInfo: 18,
  afSpec: 26,
  netnsFd: 28,
} as const;
/** Members of IFLA_AF_SPEC for IPv6. */
export const INET6 = { addressMode: 8, noAddress: 1 } as const;
export const INFO = { kind: 1, data: 2, slaveKind: 4, slaveData: 5 } as const;
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
export const AF_INET6 = 10;

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

export function newLink(flags: number, header: Buffer, attributes: readonly Buffer[]): NetlinkMessage {
  return { type: RTM.newLink, flags, body: Buffer.concat([header, ...attributes]) };
}

export function linkHeader(index: number, up: boolean): Buffer {
  const header = Buffer.alloc(16);
  header.writeInt32LE(index, 4);
  if (up) {
    header.writeUInt32LE(IFF_UP, 8);
    header.writeUInt32LE(IFF_UP, 12);
  }
  return header;
}

export function addressMessage(
  type: number,
  flags: number,
  index: number,
  { ip, prefixLength }: LinkAddress,
): NetlinkMessage {
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

/** A route in place of another to the same destination: without one the default route. */
export function routeMessage(index: number, gateway: string, destination?: LinkAddress): NetlinkMessage {
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

export function parseLink(payload: Buffer): Link {
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

export function parseAddress(payload: Buffer): (LinkAddress & { readonly linkIndex: number })[] {
  const found = new Map(attributesOf(payload, 8));
  // IPv6 has no local address apart from point-to-point links.
  const bytes = found.get(IFA.local) ?? found.get(IFA.address);
  return bytes ? [{ linkIndex: payload.readUInt32LE(4), ip: addressText(bytes), prefixLength: payload[1] ?? 0 }] : [];
}

export function parseRoute(payload: Buffer): Route[] {
  const found = new Map(attributesOf(payload, 12));
  const destination = found.get(RTA.destination);
  const table = found.get(RTA.table)?.readUInt32LE(0) ?? payload[4];
  const linkIndex = found.get(RTA.oif)?.readUInt32LE(0) ?? 0;
  return destination && table === RT_TABLE_MAIN
    ? [{ destination: { ip: addressText(destination), prefixLength: payload[1] ?? 0 }, linkIndex }]
    : [];
}
