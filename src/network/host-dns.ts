/** Reads the host's resolver configuration as a container can use it. */
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';

export interface HostDns {
  nameservers: string[];
  search: string[];
  options: string[];
}

/** The known engine uses these servers when the host names no server that a container can reach. */
const PUBLIC_SERVERS = ['8.8.8.8', '8.8.4.4'];
const STUB_SERVER = '127.0.0.53';

/**
 * Reads the host's file. If it points to the stub of systemd-resolved, its real servers are read; loopback servers are
 * dropped.
 */
export async function readHostDns(
  path = '/etc/resolv.conf',
  behindStub = '/run/systemd/resolve/resolv.conf',
): Promise<HostDns> {
  let dns = parseResolvConf(await readFile(path, 'utf8').catch(() => ''));
  if (dns.nameservers.length === 1 && dns.nameservers[0] === STUB_SERVER) {
    const real = await readFile(behindStub, 'utf8').catch(() => undefined);
    if (real !== undefined) dns = parseResolvConf(real);
  }
  const nameservers = dns.nameservers.filter((server) => !/^(127\.|::1$)/.test(server));
  return { ...dns, nameservers: nameservers.length > 0 ? nameservers : PUBLIC_SERVERS };
}

/** Returns the servers that the host itself asks, including those at loopback addresses. */
export async function readHostServers(path = '/etc/resolv.conf'): Promise<readonly string[]> {
  const { nameservers } = parseResolvConf(await readFile(path, 'utf8').catch(() => ''));
  const valid = nameservers.filter((server) => isIP(server) !== 0);
  return valid.length > 0 ? valid : PUBLIC_SERVERS;
}

export function parseResolvConf(text: string): HostDns {
  const dns: HostDns = { nameservers: [], search: [], options: [] };
  for (const line of text.split('\n')) {
    const [keyword, ...values] = (line.split(/[#;]/, 1)[0] ?? '').trim().split(/\s+/);
    if (keyword === 'nameserver' && values[0] !== undefined) dns.nameservers.push(values[0]);
    else if (keyword === 'search' || keyword === 'domain') dns.search = values;
    else if (keyword === 'options') dns.options = values;
  }
  return dns;
}
