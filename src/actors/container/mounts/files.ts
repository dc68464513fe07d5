/** The files that the daemon keeps for a container: hostname, hosts and resolver configuration. */
import { chown, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { behindResolver, hostsFile, resolvConfFile, hostnameFile } from '../../../network/files.js';
import { internal } from '../../../errors/engine-error.js';
import type { Owner } from '../../../ports/id-maps.js';
import type { NetworkDriver } from '../../../ports/network.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerFiles, WrittenFiles } from '../deps.js';
import { refusesIpv6 } from '../network/networks.js';
import { linkedContainers, linkHosts } from '../network/legacy-links.js';

export interface FilesDeps {
  readonly network: NetworkDriver;
  readonly find: (id: string) => ContainerRecord | undefined;
  readonly dir: (id: string) => string;
  /** Returns the owner of the files: root, as the container has it. */
  readonly owner: (record: ContainerRecord) => Owner;
  readonly settings: () => {
    readonly dns: readonly string[];
    readonly dnsSearch: readonly string[];
    readonly dnsOptions: readonly string[];
    readonly hostGatewayIps: readonly string[];
  };
}

/** Returns the id of the container whose files this one has: who shares a network shares its names. */
export function filesOwner(record: ContainerRecord, find: FilesDeps['find']): string {
  const mode = record.hostConfig.NetworkMode;
  if (!mode.startsWith('container:')) return record.id;
  const donor = find(mode.slice('container:'.length));
  return donor ? filesOwner(donor, find) : record.id;
}

/**
 * Returns the machine's own hosts file for a container that shares its network and names no hosts; undefined for any
 * other container, and where the machine has none.
 */
async function hostsOfMachine({ hostConfig }: ContainerRecord): Promise<string | undefined> {
  if (hostConfig.NetworkMode !== 'host' || hostConfig.ExtraHosts?.length) return undefined;
  return readFile('/etc/hosts', 'utf8').catch(() => undefined);
}

/**
 * Writes the files as the record says now, in place because they may be mounted already. Another container's files stay
 * as they are, and so do those that are `before` what they are to be.
 */
export async function writeContainerFiles(
  deps: FilesDeps,
  record: ContainerRecord,
  before?: WrittenFiles,
): Promise<WrittenFiles> {
  const owner = filesOwner(record, deps.find);
  const dir = deps.dir(owner);
  const files: ContainerFiles = {
    hostname: join(dir, 'hostname'),
    hosts: join(dir, 'hosts'),
    resolvConf: join(dir, 'resolv.conf'),
  };
  if (owner !== record.id) return { files, texts: new Map() };
  const { hostConfig, config } = record;
  const settings = deps.settings();
  if (settings.hostGatewayIps.length === 0 && hostConfig.ExtraHosts?.some((entry) => /[:=]host-gateway$/.test(entry))) {
    throw internal('unable to derive the IP value for host-gateway', {
      code: 'NO_HOST_GATEWAY',
    });
  }
  const host = await deps.network.hostDns();
  const first = <T>(...lists: (readonly T[] | null)[]): readonly T[] =>
    lists.find((list) => list !== null && list.length > 0) ?? [];
  const endpoints = Object.values(record.networks).flatMap(({ endpoint }) => (endpoint ? [endpoint] : []));
  const hasNames = Object.keys(record.networks).some((name) => deps.network.resolve(name).hasNames);
  const resolver = {
    nameservers: first(hostConfig.Dns, settings.dns, host.nameservers),
    search: first(hostConfig.DnsSearch, settings.dnsSearch, host.search),
    options: first(hostConfig.DnsOptions, settings.dnsOptions, host.options),
  };
  const hosts =
    (await hostsOfMachine(record)) ??
    hostsFile({
      hostname: config.Hostname,
      domainname: config.Domainname,
      addresses: endpoints.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6].filter(Boolean)),
      linked: linkHosts(linkedContainers(record, deps.find)),
      extraHosts: hostConfig.ExtraHosts ?? [],
      hostGatewayIps: settings.hostGatewayIps,
      hasIpv6: !refusesIpv6(record),
    });
  const texts = new Map([
    [files.hostname, hostnameFile(config.Hostname)],
    [files.hosts, hosts],
    [files.resolvConf, resolvConfFile(hasNames ? behindResolver(resolver) : resolver)],
  ]);
  const changed = [...texts].filter(([path, text]) => before?.texts.get(path) !== text);
  await Promise.all(changed.map(([path, text]) => writeFile(path, text)));
  const { uid, gid } = deps.owner(record);
  if (uid !== 0 || gid !== 0) await Promise.all(changed.map(([path]) => chown(path, uid, gid)));
  return { files, texts };
}
