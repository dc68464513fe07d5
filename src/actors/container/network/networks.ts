/** A container's networks: joined at its start, changed while it runs, left at its end. */
import { messageOf } from '../../../errors/engine-error.js';
import { wantedLinkName } from '../../../network/endpoint-options.js';
import type { Endpoint, NetworkDriver, PortRequest, PublishedPort } from '../../../ports/network.js';
import { ownsSandbox } from '../../../runtime/namespaces.js';
import type { ContainerRecord, NetworkAttachment } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { openLinks } from './legacy-links.js';
import { checkChange, isLive, type NetworkChange, withChange, withoutPending } from './network-change.js';
import { type ToldEvents, untoldNetworks } from '../life/told.js';
import { Undo } from '../life/undo.js';
import { parseMacAddress } from '../../../text/mac-address.js';
import { mapParts } from '../../../text/list-parts.js';
import { memberNames } from '../../../text/member-names.js';
import { ownMember } from '../../../text/own-member.js';
import { inTurns, type Parts } from '../../../text/turns.js';

type NetworksDeps = Pick<ContainerDeps, 'counted' | 'log' | 'network' | 'records' | 'emit' | 'writeFiles' | 'find'>;
type Attachments = ContainerRecord['networks'];

/**
 * Joins all networks of a container that starts, unless it is to have none; each is left again when the start fails.
 */
export async function joinNetworks(deps: NetworksDeps, record: ContainerRecord, undo: Undo): Promise<ContainerRecord> {
  if (record.config.NetworkDisabled) return record;
  const networks = new Map<string, NetworkAttachment>();
  const outward = wayOut(deps.network, record.networks);
  const wanted = await inTurns(wantedPorts(record));
  let ports: readonly PublishedPort[] = [];
  // Links get numbers that avoid the names that other endpoints ask for.
  const inOrder = Object.entries(record.networks).sort(
    ([, a], [, b]) => Number(asksForName(b)) - Number(asksForName(a)),
  );
  for (const [name, { request }] of inOrder) {
    const result = await deps.counted('connect', () =>
      deps.network.attach(attachRequest(record, name, request, name === outward ? wanted : [])),
    );
    undo.add('network endpoint', () => leave(deps, record, result.endpoint));
    const joined = wallTime();
    emit(deps, 'connect', record, result.endpoint);
    networks.set(name, { request, endpoint: result.endpoint, joined });
    ports = [...ports, ...result.ports];
  }
  const joined = { ...record, networks: Object.fromEntries(networks), ports };
  await openLinks(deps.network, joined, (id) => deps.find(id));
  return joined;
}

/** Tells of networks that a container has joined or left, when the last daemon was killed before it told. */
export function tellUntoldNetworks(
  deps: Parameters<typeof emit>[0],
  record: ContainerRecord,
  told: ToldEvents,
  sinceMs: number,
): void {
  for (const { action, network } of untoldNetworks(record, told, sinceMs)) emit(deps, action, record, network);
}

/**
 * Takes over the networks of a container that outlived the daemon; it leaves those that it was just joining or leaving.
 */
export async function adoptNetworks(deps: NetworksDeps, found: ContainerRecord): Promise<ContainerRecord> {
  const { network } = deps;
  const networks = withoutPending(found.networks);
  const outward = wayOut(network, networks);
  for (const [name, { endpoint }] of Object.entries(networks)) {
    if (endpoint)
      await network.adopt(found.id, endpoint, name === outward ? found.ports : [], found.hostConfig.Dns ?? undefined);
  }
  if (networks === found.networks) return found;
  for (const { pending } of Object.values(found.networks)) if (pending) await network.discard(found.id, pending);
  const record = { ...found, networks };
  await store(deps, record);
  return record;
}

/** Returns the record with another name, by which its neighbours on networks are to find it. */
export function renamed(record: ContainerRecord, name: string): ContainerRecord {
  const networks = Object.fromEntries(
    Object.entries(record.networks).map(([key, attachment]) => {
      const { endpoint } = attachment;
      if (!endpoint) return [key, attachment];
      const dnsNames = endpoint.dnsNames.map((own) => (own === record.name.slice(1) ? name.slice(1) : own));
      return [key, { ...attachment, endpoint: { ...endpoint, dnsNames } }];
    }),
  );
  return { ...record, name, networks };
}

/** Leaves all networks of a container that has ended. */
export async function leaveNetworks(deps: NetworksDeps, record: ContainerRecord): Promise<void> {
  for (const { endpoint } of Object.values(record.networks)) if (endpoint) await leave(deps, record, endpoint);
  if (ownsSandbox(record)) await deps.network.removeSandbox(record.id);
}

async function leave(deps: NetworksDeps, record: ContainerRecord, endpoint: Endpoint): Promise<void> {
  await deps.network.detach(record.id, endpoint);
  emit(deps, 'disconnect', record, endpoint);
}

/** Makes a change to the networks of a container, running or not. It is on disk when the promise resolves. */
export async function rewire(
  deps: NetworksDeps,
  before: ContainerRecord,
  change: NetworkChange,
): Promise<ContainerRecord> {
  checkChange(before, change, (name) => deps.network.resolve(name));
  if (isLive(before))
    return change.type === 'connect'
      ? connect(deps, before, change.network, change.request)
      : disconnect(deps, before, change.network);
  const after = withChange(before, change);
  await deps.records.save(after);
  return after;
}

async function connect(
  deps: NetworksDeps,
  before: ContainerRecord,
  name: string,
  request: NetworkAttachment['request'],
): Promise<ContainerRecord> {
  const { network, records } = deps;
  const old = outwardEndpoint(network, before.networks);
  // Published ports move to the new way out. Nobody else can take them meanwhile, because the daemon does one thing at
  // a time here.
  const moves = wayOut(network, { ...before.networks, [name]: { request } }) === name;
  const names = network.nameEndpoint(before.id, name, request.DriverOpts ?? {});
  const wanted = await keptPorts(before);
  const undo = new Undo(deps.log);
  try {
    undo.add('container record', () => store(deps, before));
    await records.save({ ...before, networks: { ...before.networks, [name]: { request, pending: names } } });
    if (moves && old) {
      undo.add('published ports', () => network.publish(old, before.ports));
      await network.unpublish(old);
    }
    const { endpoint, ports } = await deps.counted('connect', () =>
      network.attach({ ...attachRequest(before, name, request, moves ? wanted : []), names }),
    );
    undo.add('network endpoint', () => network.disconnect(before.id, endpoint));
    const after = {
      ...before,
      networks: { ...before.networks, [name]: { request, endpoint, joined: wallTime() } },
      ports: moves ? ports : before.ports,
    };
    await store(deps, after);
    emit(deps, 'connect', before, endpoint);
    return after;
  } catch (error) {
    await undo.run();
    throw error;
  }
}

/** Writes the record, and the files that the container sees. */
async function store(deps: NetworksDeps, record: ContainerRecord): Promise<void> {
  await deps.writeFiles(record);
  await deps.records.save(record);
}

async function disconnect(deps: NetworksDeps, before: ContainerRecord, name: string): Promise<ContainerRecord> {
  const { [name]: _gone, ...networks } = before.networks;
  const gone = ownMember(before.networks, name);
  let after: ContainerRecord = { ...before, networks };
  if (gone?.endpoint) {
    const { endpointId, interfaceName, networkId, networkName } = gone.endpoint;
    const leaving = { since: wallTime(), networkId, networkName };
    const hadPorts = wayOut(deps.network, before.networks) === name;
    // From here on the change will be finished, if need be by the next daemon.
    await deps.records.save({
      ...before,
      networks: { ...networks, [name]: { request: gone.request, pending: { endpointId, interfaceName }, leaving } },
    });
    await deps.network.disconnect(before.id, gone.endpoint);
    emit(deps, 'disconnect', before, gone.endpoint);
    const next = outwardEndpoint(deps.network, networks);
    if (hadPorts)
      after = {
        ...after,
        ports: next
          ? await deps.network.publish(next, before.ports).catch((error: unknown) => lost(deps, before, error))
          : [],
      };
  }
  // The container has left the network. If the record cannot be written now, the next daemon finishes the change from
  // the note that was written before.
  await store(deps, after).catch((error: unknown) => {
    if (!gone?.endpoint) throw error;
    deps.log.error({ err: error, container: before.id }, 'record of a container that has left a network not saved');
  });
  return after;
}

function lost({ log }: NetworksDeps, { id, ports }: ContainerRecord, error: unknown): readonly PublishedPort[] {
  log.error(
    { container: id, ports, reason: messageOf(error) },
    'published ports could not be moved to another network',
  );
  return [];
}

/** Returns whether a kernel parameter of the container disables IPv6 on all its links. */
export function refusesIpv6({ hostConfig }: ContainerRecord): boolean {
  return hostConfig.Sysctls?.['net.ipv6.conf.all.disable_ipv6'] === '1';
}

function asksForName({ request }: NetworkAttachment): boolean {
  return wantedLinkName(request.DriverOpts ?? {}) !== undefined;
}

function attachRequest(
  record: ContainerRecord,
  network: string,
  request: NetworkAttachment['request'],
  ports: readonly PortRequest[],
) {
  const aliases = request.Aliases ?? [];
  return {
    containerId: record.id,
    network,
    aliases,
    dnsNames: [...new Set([record.name.slice(1), ...aliases, record.id.slice(0, 12), record.config.Hostname])].filter(
      (name) => name !== '',
    ),
    links: Object.fromEntries((request.Links ?? []).map(parseLink)),
    withoutIpv6: refusesIpv6(record),
    ports,
    ...optional('macAddress', parseMacAddress(request.MacAddress ?? '')),
    ...optional('ipv4', request.IPAMConfig?.IPv4Address || undefined),
    ...optional('ipv6', request.IPAMConfig?.IPv6Address || undefined),
    ...optional('gatewayPriority', request.GwPriority),
    ...optional('linkLocalAddresses', request.IPAMConfig?.LinkLocalIPs),
    ...optional('options', request.DriverOpts ?? undefined),
    ...optional('nameservers', record.hostConfig.Dns ?? undefined),
  };
}

/** Splits `name:alias`; a name without alias is its own alias. */
function parseLink(link: string): [alias: string, name: string] {
  const [name = '', alias = name] = link.split(':');
  return [alias.toLowerCase(), name];
}

/** Returns the network that published ports belong to: the container is reached from outside through it. */
function wayOut(network: NetworkDriver, networks: Attachments): string | undefined {
  return network.wayOut(
    Object.entries(networks).map(([name, { request }]) => ({ name, gatewayPriority: request.GwPriority ?? 0 })),
  );
}

function outwardEndpoint(network: NetworkDriver, networks: Attachments): Endpoint | undefined {
  return ownMember(networks, wayOut(network, networks) ?? '')?.endpoint;
}

/**
 * Returns the published ports with the numbers that they have; on a routed network they have none, so the wanted ones.
 */
async function keptPorts(record: ContainerRecord): Promise<readonly PortRequest[]> {
  return record.ports.length > 0 && record.ports.every(({ hostPort }) => hostPort !== 0)
    ? record.ports
    : inTurns(wantedPorts(record));
}

function* wantedPorts({ config, hostConfig }: ContainerRecord): Parts<readonly PortRequest[]> {
  const bindings = hostConfig.PortBindings ?? {};
  const bound = yield* mapParts(memberNames(bindings), (key) =>
    (ownMember(bindings, key) ?? []).map(({ HostIp, HostPort }) => portRequest(key, HostIp, HostPort)),
  );
  const exposed = hostConfig.PublishAllPorts ? memberNames(config.ExposedPorts ?? {}) : [];
  const others = yield* mapParts(exposed, (key) =>
    ownMember(bindings, key)?.length ? [] : [portRequest(key, '', '')],
  );
  return [...bound, ...others].flat();
}

/** @param hostPort '' is any, `8000-8010` the first free one of these. */
function portRequest(key: string, hostIp: string, hostPort: string): PortRequest {
  const [port = '', protocol = 'tcp'] = key.split('/');
  const [first = '', last] = (hostPort.split('/')[0] ?? '').split('-');
  const request = {
    containerPort: Number(port),
    protocol: protocol as PortRequest['protocol'],
    hostIp,
    hostPort: Number(first),
  };
  return last === undefined ? request : { ...request, hostPortEnd: Number(last) };
}

function emit(
  { emit, network }: Pick<NetworksDeps, 'emit'> & { readonly network: Pick<NetworkDriver, 'list'> },
  action: 'connect' | 'disconnect',
  record: ContainerRecord,
  { networkId, networkName }: Pick<Endpoint, 'networkId' | 'networkName'>,
): void {
  emit('network', action, networkId, {
    container: record.id,
    name: networkName,
    type: network.list().find(({ id }) => id === networkId)?.driver ?? '',
  });
}

/** Events have this clock, too. */
function wallTime(): string {
  return new Date().toISOString();
}

function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}
