/** Checks of single items of list options. Each throws invalid with the reason and returns the item, normalised. */
import { isIP } from 'node:net';
import { invalid } from '../errors/engine-error.js';
import { checkCidr } from './value-types.js';

export function checkLabel(label: string): string {
  if (!/^[^=]+=/.test(label)) throw invalid(`bad attribute format: ${label}`);
  return label;
}

export function checkKeyValue(pair: string): string {
  if (!/^[^=]+=/.test(pair)) throw invalid(`must have the form <key>=<value>, not ${JSON.stringify(pair)}`);
  return pair;
}

export function checkDnsSearch(domain: string): string {
  const trimmed = domain.trim();
  if (
    trimmed !== '.' &&
    !/^(?:[a-zA-Z0-9_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9_])?\.)*[a-zA-Z0-9_](?:[a-zA-Z0-9_-]*[a-zA-Z0-9_])?\.?$/.test(trimmed)
  ) {
    throw invalid(`${domain} is not a valid domain`);
  }
  return trimmed;
}

export function checkDnsOption(option: string): string {
  // A line break in an option would add a line to the file.
  if (/\s/.test(option)) throw invalid(`${JSON.stringify(option)} is not a valid DNS option`);
  return option;
}

export function checkMirror(mirror: string): string {
  if (!/^https?:\/\//.test(mirror)) {
    const scheme = /^([a-zA-Z][a-zA-Z0-9+.-]*):\/\//.exec(mirror)?.[1];
    if (scheme === undefined)
      throw invalid(
        `invalid mirror: no scheme specified for ${JSON.stringify(mirror)}: must use either 'https://' or 'http://'`,
      );
    throw invalid(
      `invalid mirror: unsupported scheme ${JSON.stringify(scheme)} in ${JSON.stringify(mirror)}: ` +
        "must use either 'https://' or 'http://'",
    );
  }
  if (!URL.canParse(mirror)) throw invalid(`invalid mirror: ${JSON.stringify(mirror)} is not a valid URI`);
  const url = new URL(mirror);
  if (url.username !== '' || url.password !== '') throw invalid('invalid mirror: username/password not allowed in URI');
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '') {
    throw invalid(`invalid mirror: path, query, or fragment at end of the URI ${JSON.stringify(mirror)}`);
  }
  return `${mirror.replace(/\/$/, '')}/`;
}

/** Checks `host[:port]`, an IP range, or an index name. A scheme before it is ignored, because both are tried. */
export function checkInsecureRegistry(written: string): string {
  const registry = written.replace(/^https?:\/\//i, '');
  if (registry.includes('://')) throw invalid(`insecure registry ${registry} should not contain '://'`);
  if (registry.includes('/')) return checkCidr(registry, isIP(registry.split('/')[0] ?? '') === 6 ? 6 : 4);
  const match = /^(\[[0-9a-fA-F:]+\]|[^:]+)(?::(\d+))?$/.exec(registry);
  const host = match?.[1]?.replace(/^\[(.*)\]$/, '$1') ?? '';
  const port = Number(match?.[2] ?? 0);
  if (!match || (isIP(host) === 0 && !/^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$/.test(host)))
    throw invalid(`insecure registry ${registry} is not valid: invalid host ${JSON.stringify(registry)}`);
  if (port > 65_535)
    throw invalid(`insecure registry ${registry} is not valid: invalid port ${JSON.stringify(match[2])}`);
  return registry;
}

export function checkProxyUrl(proxy: string): string {
  if (proxy === '') return proxy;
  const url = /^[a-z0-9]+:\/\//i.test(proxy) ? proxy : `http://${proxy}`;
  // The text is not repeated: it may hold a password.
  if (!URL.canParse(url) || !/^(https?|socks5h?):$/.test(new URL(url).protocol))
    throw invalid('must be the URL of an HTTP, HTTPS or SOCKS5 proxy');
  return proxy;
}

export function checkCollector(url: string): string {
  // The text is not repeated: it may hold a password.
  if (url !== '' && !(URL.canParse(url) && ['http:', 'https:'].includes(new URL(url).protocol)))
    throw invalid('must be a URL with http:// or https://');
  return url;
}

export function checkHostPort(address: string): string {
  if (address === '') return address;
  const match = /^(\[[0-9a-fA-F:]+\]|[^:[\]]*):(\d{1,5})$/.exec(address);
  if (!match || Number(match[2]) > 65_535)
    throw invalid(`must have the form <host>:<port>, not ${JSON.stringify(address)}`);
  return address;
}
