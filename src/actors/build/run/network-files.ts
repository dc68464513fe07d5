/** /etc/hosts and /etc/resolv.conf of a RUN. They are mounted, and never part of a layer. */
import { readFile } from 'node:fs/promises';
import { internal } from '../../../errors/engine-error.js';
import { resolvConfFile } from '../../../network/files.js';
import type { NetworkDriver } from '../../../ports/network.js';
import type { StepNetwork } from './entitlements.js';

export interface DnsSettings {
  readonly dns: readonly string[];
  readonly dnsSearch: readonly string[];
  readonly dnsOptions: readonly string[];
  /** Addresses that `host-gateway` stands for. */
  readonly hostGatewayIps: readonly string[];
}

/** @param extraHosts `name:address`. @throws EngineError internal when `host-gateway` stands for nothing. */
export function stepHosts(hostname: string, extraHosts: readonly string[], { hostGatewayIps }: DnsSettings): string {
  const lines = [`127.0.0.1\tlocalhost ${hostname}`, '::1\tlocalhost ip6-localhost ip6-loopback'];
  for (const entry of extraHosts) {
    const separator = entry.search(/[:=]/);
    const name = entry.slice(0, separator);
    const address = entry.slice(separator + 1).replace(/^\[(.*)\]$/, '$1');
    if (address === 'host-gateway' && hostGatewayIps.length === 0)
      throw internal('unable to derive the IP value for host-gateway', { code: 'NO_HOST_GATEWAY' });
    for (const ip of address === 'host-gateway' ? hostGatewayIps : [address]) lines.push(`${ip}\t${name}`);
  }
  return `${lines.join('\n')}\n`;
}

/** A step on the network of the host can reach name servers that only the host reaches. */
export async function stepResolvConf(
  network: Pick<NetworkDriver, 'hostDns'>,
  mode: StepNetwork,
  { dns, dnsSearch, dnsOptions }: DnsSettings,
): Promise<string> {
  const isPlain = dns.length === 0 && dnsSearch.length === 0 && dnsOptions.length === 0;
  if (mode === 'host' && isPlain) {
    const text = await readFile('/etc/resolv.conf', 'utf8').catch(() => undefined);
    if (text !== undefined) return text;
  }
  const host = await network.hostDns();
  const first = (own: readonly string[], others: readonly string[]): readonly string[] =>
    own.length > 0 ? own : others;
  return resolvConfFile({
    nameservers: first(dns, host.nameservers),
    search: first(dnsSearch, host.search),
    options: first(dnsOptions, host.options),
  });
}
