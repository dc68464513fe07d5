/** Addresses of remote logs, as `proto://address`. */
import { badOption } from '../options/option-values.js';

const TRANSPORTS = ['tcp://', 'tcp+tls://', 'udp://', 'unix://', 'unixgram://'];

/** `url`: the part after the scheme, split at its first slash. */
export interface TransportUrl {
  readonly scheme: string;
  readonly host: string;
  readonly path: string;
}

export interface HostPort {
  readonly host: string;
  /** Undefined when the address has no port. */
  readonly port: string | undefined;
}

export function isTransportUrl(address: string): boolean {
  return TRANSPORTS.some((prefix) => address.startsWith(prefix) && address.length > prefix.length);
}

/** Parses an address. Throws invalid, with the texts of Go's `net/url`. */
export function parseTransportUrl(address: string): TransportUrl {
  const [, scheme = '', host = '', path = ''] = /^([a-z+]+):\/\/([^/?#]*)([^?#]*)/.exec(address) ?? [];
  const fault = (what: string): Error => badOption(`parse ${JSON.stringify(address)}: ${what}`);
  if (host.startsWith('[') && !host.includes(']')) throw fault("missing ']' in host");
  const port = /^(?:\[[^\]]*\]|[^:]*)(:.*)?$/.exec(host)?.[1];
  if (port !== undefined && !/^:\d*$/.test(port) && port.lastIndexOf(':') === 0)
    throw fault(`invalid port ${JSON.stringify(port)} after host`);
  return { scheme, host, path };
}

/** Splits `host:port`; a host alone is allowed. Throws invalid, with the texts of Go's `net`, for anything else. */
export function splitHostPort(address: string): HostPort {
  const fault = (what: string): Error => badOption(`address ${address}: ${what}`);
  if (address.startsWith('[')) {
    const end = address.indexOf(']');
    if (end < 0) throw fault("missing ']' in address");
    const rest = address.slice(end + 1);
    if (rest !== '' && !rest.startsWith(':')) throw fault('too many colons in address');
    return { host: address.slice(1, end), port: rest === '' ? undefined : rest.slice(1) };
  }
  const colon = address.indexOf(':');
  if (colon < 0) return { host: address, port: undefined };
  if (address.includes(':', colon + 1)) throw fault('too many colons in address');
  return { host: address.slice(0, colon), port: address.slice(colon + 1) };
}
