/**
 * Links between containers of the default bridge (`HostConfig.Links`): names in the hosts file and variables of the
 * environment.
 */
import { conflict, invalid, isEngineError, notFound } from '../../../errors/engine-error.js';
import type { HostConfig } from '../../../ports/container.js';
import type { NetworkDriver, PublishedPort } from '../../../ports/network.js';
import type { ContainerRecord } from '../container.record.js';

export interface LegacyLink {
  readonly id: string;
  readonly alias: string;
}

/**
 * Returns the containers that the request links to. On user-defined networks a link belongs to the endpoint, not to the
 * container.
 * @throws EngineError invalid when there is no such container, conflict when it has the host's network.
 */
export function planLegacyLinks(
  { Links, NetworkMode }: HostConfig,
  find: (reference: string) => ContainerRecord,
): LegacyLink[] {
  if (NetworkMode !== 'bridge' && NetworkMode !== 'none') return [];
  const links = (Links ?? []).map((text) => {
    if (text === '') throw invalid('empty string specified for links');
    const [name = '', alias = name] = text.split(':');
    if (name === '' || alias === '' || text.split(':').length > 2) throw invalid(`bad format for links: ${text}`);
    try {
      const target = find(name);
      if (target.hostConfig.NetworkMode === 'host')
        throw conflict(
          "conflicting options: host type networking can't be used with links. This would result in undefined behavior",
        );
      return { id: target.id, alias: alias.replace(/^.*\//, '') };
    } catch (error) {
      // A 404 would make clients pull the image.
      if (isEngineError(error, 'not-found'))
        throw invalid(`could not get container for ${name}: ${error.message}`, { cause: error });
      throw error;
    }
  });
  return NetworkMode === 'bridge' ? links : [];
}

/** Returns the links as inspect shows them: `/target:/name/alias`. */
export function shownLinks(
  record: ContainerRecord,
  find: (id: string) => ContainerRecord | undefined,
): string[] | null {
  const shown = (record.links ?? []).flatMap(({ id, alias }) => {
    const target = find(id);
    return target ? [`${target.name}:${record.name}/${alias}`] : [];
  });
  return shown.length === 0 ? null : shown;
}

/** Returns the names that containers have by links to them, by id: `/name/alias` for each. */
export function linkNames(records: Iterable<ContainerRecord>): Map<string, string[]> {
  const names = new Map<string, string[]>();
  for (const { name, links } of records)
    for (const { id, alias } of links ?? []) names.set(id, [...(names.get(id) ?? []), `${name}/${alias}`]);
  return names;
}

interface LinkedContainer {
  readonly alias: string;
  readonly target: ContainerRecord;
  readonly address: string;
}

/**
 * Returns the linked containers that run. When the container starts, all of them have to.
 * @throws EngineError conflict.
 */
export function linkedContainers(
  record: ContainerRecord,
  find: (id: string) => ContainerRecord | undefined,
): LinkedContainer[] {
  return (record.links ?? []).flatMap(({ id, alias }) => {
    const target = find(id);
    if (!target) return [];
    const address = target.networks['bridge']?.endpoint?.ipv4 ?? '';
    if (target.state.status !== 'running' || address === '') {
      if (record.state.status === 'starting')
        throw conflict(`Cannot link to a non running container: ${target.name} AS ${record.name}/${alias}`);
      return [];
    }
    return [{ alias, target, address }];
  });
}

/** Returns the address and the names of each link, for the hosts file. */
export function linkHosts(links: readonly LinkedContainer[]): { address: string; names: string[] }[] {
  return links.map(({ alias, target, address }) => ({
    address,
    names: [...new Set([alias, target.config.Hostname, target.name.slice(1)])],
  }));
}

/**
 * Lets a container reach the exposed ports of the containers that it is linked to, and no longer those of former links.
 */
export async function openLinks(
  network: Pick<NetworkDriver, 'link'>,
  record: ContainerRecord,
  find: (id: string) => ContainerRecord | undefined,
): Promise<void> {
  const own = record.networks['bridge']?.endpoint;
  if (!own || !record.links) return;
  const targets = linkedContainers(record, find).flatMap(({ target }) => {
    const endpoint = target.networks['bridge']?.endpoint;
    return endpoint ? [{ endpoint, ports: exposedPorts(target) }] : [];
  });
  await network.link(own, targets);
}

function exposedPorts({
  config,
}: ContainerRecord): { readonly protocol: PublishedPort['protocol']; readonly port: number }[] {
  return Object.keys(config.ExposedPorts ?? {}).map((key) => {
    const [port = '', protocol = 'tcp'] = key.split('/');
    return { port: Number(port), protocol: protocol as PublishedPort['protocol'] };
  });
}

/** These variables are not handed on, because every container has its own. */
const OWN_VARIABLES = new Set(['HOME', 'PATH']);

/**
 * Returns `DB_NAME`, `DB_PORT_5432_TCP_ADDR`, `DB_ENV_…`, as programs from before user-defined networks expect them.
 */
export function linkEnvironment(record: ContainerRecord, links: readonly LinkedContainer[]): string[] {
  return links.flatMap(({ alias, target, address }) => {
    const prefix = alias.toUpperCase().replaceAll('-', '_');
    const ports = Object.keys(target.config.ExposedPorts ?? {})
      .map((port) => port.split('/'))
      .map(([number = '', protocol = 'tcp']) => ({ number: Number(number), protocol }))
      .sort((a, b) => a.number - b.number || (a.protocol < b.protocol ? -1 : 1));
    const [first] = ports;
    const url = ({ number, protocol }: { number: number; protocol: string }): string =>
      `${protocol}://${address}:${number}`;
    return [
      ...(first ? [`${prefix}_PORT=${url(first)}`] : []),
      ...ports.flatMap((port) => {
        const name = `${prefix}_PORT_${port.number}_${port.protocol.toUpperCase()}`;
        return [
          `${name}=${url(port)}`,
          `${name}_ADDR=${address}`,
          `${name}_PORT=${port.number}`,
          `${name}_PROTO=${port.protocol}`,
        ];
      }),
      `${prefix}_NAME=${record.name}/${alias}`,
      ...(target.config.Env ?? []).flatMap((entry) => {
        const [name = '', ...value] = entry.split('=');
        return OWN_VARIABLES.has(name) ? [] : [`${prefix}_ENV_${name}=${value.join('=')}`];
      }),
    ];
  });
}

/** Returns the record without the link. @throws EngineError not-found. */
export function withoutLink(record: ContainerRecord, alias: string): ContainerRecord {
  const links = record.links ?? [];
  if (!links.some((link) => link.alias === alias))
    throw notFound(`Cannot find link ${alias} of container ${record.name}`);
  return { ...record, links: links.filter((link) => link.alias !== alias) };
}
