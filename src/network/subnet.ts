/** IP subnets in CIDR form. Addresses are big integers here, because IPv6 addresses need 128 bits. */
import { invalid } from '../errors/engine-error.js';
import { addressBytes, addressFamily, addressText } from '../sys/net/ip-address.js';

export type Family = 4 | 6;

export interface Subnet {
  readonly family: Family;
  /** The first address of the network, as a number. */
  readonly base: bigint;
  readonly prefixLength: number;
}

/** Parses `10.1.0.0/16` or `fd00::/64`; host bits are cleared. Throws invalid naming `field`. */
export function parseSubnet(text: string, field: string, family?: Family): Subnet {
  const [address = '', prefix = '', ...more] = text.split('/');
  const found = addressFamily(address);
  const prefixLength = Number(prefix);
  const isWrong =
    (found !== 4 && found !== 6) ||
    (family !== undefined && found !== family) ||
    more.length > 0 ||
    !/^\d{1,3}$/.test(prefix) ||
    prefixLength > bitsOf(found);
  if (isWrong)
    throw invalid(
      `invalid ${field}: ${text} is not an ${family === undefined ? 'IP' : `IPv${family}`} subnet ` +
        `such as ${family === 6 ? 'fd00:1::/64' : '172.20.0.0/16'}`,
    );
  return subnetAround(address, prefixLength);
}

/** Returns the subnet of this size that contains an address. */
export function subnetAround(address: string, prefixLength: number): Subnet {
  const family = familyOf(address);
  return { family, base: toNumber(address) & maskOf(family, prefixLength), prefixLength };
}

export function formatSubnet({ family, base, prefixLength }: Subnet): string {
  return `${toAddress(family, base)}/${prefixLength}`;
}

/** The address must be valid: node:net would compile an expression of a thousand characters to tell them apart. */
export function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4;
}

/** Returns an address as a number. It must be valid (node:net isIP). */
export function toNumber(address: string): bigint {
  return BigInt(`0x${addressBytes(address).toString('hex')}`);
}

export function toAddress(family: Family, value: bigint): string {
  return addressText(Buffer.from(value.toString(16).padStart(bitsOf(family) / 4, '0'), 'hex'));
}

export function contains(subnet: Subnet, address: string): boolean {
  return (
    familyOf(address) === subnet.family &&
    (toNumber(address) & maskOf(subnet.family, subnet.prefixLength)) === subnet.base
  );
}

/** True when `inner` is wholly inside `outer`. */
export function covers(outer: Subnet, inner: Subnet): boolean {
  return outer.prefixLength <= inner.prefixLength && overlaps(outer, inner);
}

export function overlaps(a: Subnet, b: Subnet): boolean {
  if (a.family !== b.family) return false;
  const mask = maskOf(a.family, Math.min(a.prefixLength, b.prefixLength));
  return (a.base & mask) === (b.base & mask);
}

/** Returns the number of addresses, including those of the network and for broadcasts. */
export function sizeOf({ family, prefixLength }: Subnet): bigint {
  return 1n << BigInt(bitsOf(family) - prefixLength);
}

function bitsOf(family: Family): number {
  return family === 4 ? 32 : 128;
}

function maskOf(family: Family, prefixLength: number): bigint {
  const bits = BigInt(bitsOf(family));
  return ((1n << bits) - 1n) ^ ((1n << (bits - BigInt(prefixLength))) - 1n);
}
