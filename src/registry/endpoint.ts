/**
 * Finds where a registry is reached and how far it is trusted: mirrors, insecure registries, certificates per registry.
 */
import { lookup as dnsLookup } from 'node:dns/promises';
import { readdir, readFile } from 'node:fs/promises';
import { BlockList, isIP } from 'node:net';
import { join } from 'node:path';
import { internal, invalid } from '../errors/engine-error.js';
import type { TlsSettings } from './http.js';
import { ownMember } from '../text/own-member.js';
import { withoutTrailing } from '../text/trailing.js';

/** One base URL of a registry, without a trailing slash: `https://registry-1.docker.io`. */
export interface Endpoint {
  readonly url: string;
  readonly tls: TlsSettings;
}

/** A host that may serve a repository. Its endpoints are alternatives: the first that answers is the registry. */
export interface RegistryHost {
  /** The name that the operator or the reference gives it; certificates, sessions and messages use it. */
  readonly name: string;
  readonly isMirror: boolean;
  readonly isInsecure: boolean;
  readonly endpoints: readonly Endpoint[];
}

export interface RegistryRules {
  /** Registries as `host`, `host:port` or CIDR. Loopback is always insecure. */
  readonly insecure: readonly string[];
  /** Base URLs of mirrors, for the default registry only. */
  readonly mirrors: readonly string[];
  /** Base URLs of mirrors for other registries, by their domain. */
  readonly mirrorsFor?: Readonly<Record<string, readonly string[]>>;
  /** A directory such as `/etc/engine/certs.d`, with `<host:port>/{*.crt, *.cert, *.key}`. */
  readonly certsDir: string;
}

export type ResolveAddresses = (host: string) => Promise<readonly string[]>;

const DEFAULT_DOMAIN = 'docker.io';
/** The default domain has hosts of other names. */
const DEFAULT_HOSTS = { registry: 'registry-1.docker.io', index: 'index.docker.io' } as const;
const LOOPBACK = ['127.0.0.0/8', '::1/128'];

const resolveAddresses: ResolveAddresses = async (host) =>
  (await dnsLookup(host, { all: true })).map(({ address }) => address);

/**
 * Returns the hosts to try for a repository's domain, in order. Mirrors come first. Insecure hosts are tried with
 * unverified TLS, then with plain HTTP. Throws `internal` for unreadable certificates.
 */
export async function hostsFor(
  domain: string,
  rules: RegistryRules,
  resolve: ResolveAddresses = resolveAddresses,
): Promise<RegistryHost[]> {
  const mirrors = domain === DEFAULT_DOMAIN ? rules.mirrors : (ownMember(rules.mirrorsFor, domain) ?? []);
  return [
    ...(await Promise.all(mirrors.map((mirror) => mirrorHost(mirror, rules, resolve)))),
    await hostOf(domain, 'registry', rules, resolve),
  ];
}

/**
 * Returns the host of a domain itself. `registry` has its images; `index` is where they are searched. Throws `internal`
 * for unreadable certificates.
 */
export async function hostOf(
  domain: string,
  service: 'registry' | 'index',
  rules: RegistryRules,
  resolve: ResolveAddresses = resolveAddresses,
): Promise<RegistryHost> {
  const address = domain === DEFAULT_DOMAIN ? DEFAULT_HOSTS[service] : domain;
  const isInsecure = await matchesInsecure(domain, rules.insecure, resolve);
  const tls = await tlsFor(address, rules.certsDir, !isInsecure);
  const endpoints = [{ url: `https://${address}`, tls }];
  if (isInsecure) endpoints.push({ url: `http://${address}`, tls });
  return { name: domain, isMirror: false, isInsecure, endpoints };
}

async function mirrorHost(mirror: string, rules: RegistryRules, resolve: ResolveAddresses): Promise<RegistryHost> {
  const url = URL.canParse(mirror) ? new URL(mirror) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol))
    throw invalid(`invalid mirror: "${mirror}" is not an http(s) URL`);
  const isInsecure = await matchesInsecure(url.host, rules.insecure, resolve);
  const tls = await tlsFor(url.host, rules.certsDir, !isInsecure);
  return {
    name: url.host,
    isMirror: true,
    isInsecure,
    endpoints: [{ url: url.origin + withoutTrailing(url.pathname, '/'), tls }],
  };
}

/** True when the registry was declared insecure by name, or when one of its addresses lies in a declared network. */
async function matchesInsecure(
  domain: string,
  insecure: readonly string[],
  resolve: ResolveAddresses,
): Promise<boolean> {
  if (insecure.includes(domain)) return true;
  const networks = networksOf([...LOOPBACK, ...insecure]);
  const host = domain.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
  // If the host is unknown, the request fails later, with a better text.
  const addresses = isIP(host) ? [host] : await resolve(host).catch(() => []);
  return addresses.some((address) => networks.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4'));
}

function networksOf(entries: readonly string[]): BlockList {
  const networks = new BlockList();
  for (const entry of entries) {
    const [address = '', prefix] = entry.split('/', 2);
    const family = isIP(address);
    if (prefix !== undefined && family !== 0)
      networks.addSubnet(address, Number(prefix), family === 6 ? 'ipv6' : 'ipv4');
  }
  return networks;
}

/**
 * Reads the certificates in `<certsDir>/<host:port>/`: every `.crt` is a CA; a `.cert` is a client certificate and
 * needs its `.key`.
 */
async function tlsFor(host: string, certsDir: string, verify: boolean): Promise<TlsSettings> {
  const dir = join(certsDir, host);
  const names = await readdir(dir).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw internal(`error reading registry certificates in ${dir}: ${error.message}`, { cause: error });
  });
  const read = (name: string): Promise<string> => readFile(join(dir, name), 'utf8');
  const authorities = await Promise.all(
    names
      .filter((name) => name.endsWith('.crt'))
      .sort()
      .map(read),
  );
  const certName = names.filter((name) => name.endsWith('.cert')).sort()[0];
  const keyName = certName?.replace(/\.cert$/, '.key');
  const orphan = names.find((name) => name.endsWith('.key') && !names.includes(name.replace(/\.key$/, '.cert')));
  if (orphan !== undefined)
    throw internal(`missing client certificate ${orphan.replace(/\.key$/, '.cert')} for key ${orphan} in ${dir}`);
  if (keyName !== undefined && !names.includes(keyName))
    throw internal(`missing key ${keyName} for client certificate ${certName} in ${dir}`);
  return {
    verify,
    ...(authorities.length === 0 ? {} : { ca: authorities.join('\n') }),
    ...(certName === undefined || keyName === undefined
      ? {}
      : { cert: await read(certName), key: await read(keyName) }),
  };
}
