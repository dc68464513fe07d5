/** Makes the contents of the network files of a container. Pure. */
import { RESOLVER_ADDRESS } from '../ports/network.js';

export interface HostsInput {
  readonly hostname: string;
  readonly domainname: string;
  /** The container's own addresses. */
  readonly addresses: readonly string[];
  /** `name:address`, where the address may be `host-gateway`. */
  readonly extraHosts: readonly string[];
  readonly hostGatewayIps: readonly string[];
  /** True if the names of the host itself have IPv6 addresses, too. */
  readonly hasIpv6: boolean;
  /** Containers that this one is linked to. */
  readonly linked: readonly { readonly address: string; readonly names: readonly string[] }[];
}

const LOCAL_HOST = '127.0.0.1\tlocalhost';
const LOCAL_HOSTS_IPV6 = [
  '::1\tlocalhost ip6-localhost ip6-loopback',
  'fe00::\tip6-localnet',
  'ff00::\tip6-mcastprefix',
  'ff02::1\tip6-allnodes',
  'ff02::2\tip6-allrouters',
];

export function hostsFile(input: HostsInput): string {
  const { hostname, domainname, addresses, extraHosts, hostGatewayIps, hasIpv6, linked } = input;
  const lines = [LOCAL_HOST, ...(hasIpv6 ? LOCAL_HOSTS_IPV6 : [])];
  for (const entry of extraHosts) {
    const separator = entry.search(/[:=]/);
    const name = entry.slice(0, separator);
    const address = entry.slice(separator + 1).replace(/^\[(.*)\]$/, '$1');
    for (const ip of address === 'host-gateway' ? hostGatewayIps : [address]) lines.push(`${ip}\t${name}`);
  }
  for (const { address, names } of linked) lines.push(`${address}\t${names.join(' ')}`);
  const names = domainname === '' ? hostname : `${hostname}.${domainname} ${hostname}`;
  for (const address of addresses) lines.push(`${address}\t${names}`);
  return `${lines.join('\n')}\n`;
}

export function hostnameFile(hostname: string): string {
  return `${hostname}\n`;
}

export interface ResolvConfInput {
  readonly nameservers: readonly string[];
  readonly search: readonly string[];
  readonly options: readonly string[];
}

/**
 * Returns the contents for a container with our own name server. It is asked first for names without a dot, because
 * these are names of neighbours.
 */
export function behindResolver({ search, options }: ResolvConfInput): ResolvConfInput {
  return {
    nameservers: [RESOLVER_ADDRESS],
    search,
    options: options.some((option) => option.startsWith('ndots:')) ? options : [...options, 'ndots:0'],
  };
}

export function resolvConfFile({ nameservers, search, options }: ResolvConfInput): string {
  const lines = nameservers.map((server) => `nameserver ${server}`);
  // A client writes a single dot when it wants no search domain at all.
  const domains = search.filter((domain) => domain !== '.');
  if (domains.length > 0) lines.push(`search ${domains.join(' ')}`);
  if (options.length > 0) lines.push(`options ${options.join(' ')}`);
  return lines.map((line) => `${line}\n`).join('');
}
