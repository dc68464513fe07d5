/** IPv4 subnets in CIDR form. */
import { isIPv4 } from 'node:net';
import { invalid } from '../errors/engine-error.js';

export interface Subnet {
  /** Network address as a number. */
  readonly base: number;
  readonly prefixLength: number;
}

/** Parses `10.1.0.0/16`; host bits are cleared. Throws invalid naming `field`. */
export function parseSubnet(text: string, field: string): Subnet {
  const [address = '', prefix = ''] = text.split('/');
  const prefixLength = Number(prefix);
  if (!isIPv4(address) || !/^\d{1,2}$/.test(prefix) || prefixLength > 32) throw invalid(`invalid ${field}: ${text} is not an IPv4 subnet such as 172.20.0.0/16`);
  return { base: (toNumber(address) & mask(prefixLength)) >>> 0, prefixLength };
}

export function formatSubnet({ base, prefixLength }: Subnet): string {
  return `${toAddress(base)}/${prefixLength}`;
}

export function toNumber(address: string): number {
  return address.split('.').reduce((sum, part) => (sum << 8) | Number(part), 0) >>> 0;
}

export function toAddress(value: number): string {
  return [24, 16, 8, 0].map((shift) => (value >>> shift) & 255).join('.');
}

export function mask(prefixLength: number): number {
  return prefixLength === 0 ? 0 : (0xffff_ffff << (32 - prefixLength)) >>> 0;
}

export function contains(subnet: Subnet, address: number): boolean {
  return ((address & mask(subnet.prefixLength)) >>> 0) === subnet.base;
}

export function overlaps(a: Subnet, b: Subnet): boolean {
  return a.prefixLength <= b.prefixLength ? contains(a, b.base) : contains(b, a.base);
}

/** Number of addresses, network and broadcast address included. */
export function sizeOf({ prefixLength }: Subnet): number {
  return 2 ** (32 - prefixLength);
}
