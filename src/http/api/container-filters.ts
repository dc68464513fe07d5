/** Filters of GET /containers/json. */
import { type EngineError, invalid } from '../../errors/engine-error.js';
import type { ContainerRecord } from '../../actors/container/container.record.js';
import { isRunning } from '../../actors/container/container.record.js';
import type { Filters } from './filters.js';
import { portList } from './container-ports.js';
import { shownStatus } from './container-view.js';

const KNOWN = [
  'ancestor',
  'before',
  'since',
  'exited',
  'id',
  'isolation',
  'label',
  'name',
  'status',
  'health',
  'volume',
  'network',
  'is-task',
  'publish',
  'expose',
];
const STATUSES = ['created', 'running', 'paused', 'restarting', 'removing', 'exited', 'dead'];
const MAX_INT64 = (1n << 63n) - 1n;
const HEALTHS = ['none', 'starting', 'healthy', 'unhealthy'];

export interface FilterContext {
  find(reference: string): ContainerRecord;
  /** Returns the image id of a reference; undefined when there is none. */
  imageId(reference: string): string | undefined;
  /** Returns true when `ancestor` is the image or one of its parents. */
  isAncestor(image: string, ancestor: string): boolean;
}

/** Selects records (newest first) as the query says. */
export function selectContainers(
  records: readonly ContainerRecord[],
  query: { readonly all: boolean; readonly limit: number; readonly filters: Filters },
  context: FilterContext,
): readonly ContainerRecord[] {
  const { filters, limit } = query;
  if (filters.size === 0) {
    if (limit > 0) return records.slice(0, limit);
    return query.all ? records : records.filter(isRunning);
  }
  filters.allow(KNOWN);
  const statuses = filters.get('status');
  for (const status of statuses) if (!STATUSES.includes(status)) throw badState('status', 'state', status, STATUSES);
  for (const health of filters.get('health'))
    if (!HEALTHS.includes(health)) throw badState('health', 'health', health, HEALTHS);
  const exited = filters.get('exited').map(parseExitCode);
  // Only a state that is asked for by name shows containers that do not run, as in the known engine: `exited`, `before`
  // and `since` select among those that are shown anyway.
  const all = query.all || limit > 0 || statuses.length > 0;
  const ids = filters.has('id') ? idsWithPrefix(filters.get('id'), records) : undefined;
  const before = bound(filters, 'before', context);
  const since = bound(filters, 'since', context);
  const ancestors = filters.get('ancestor').map((reference) => context.imageId(reference) ?? '');
  const publish = filters.get('publish').map(parsePorts);
  const expose = filters.get('expose').map(parsePorts);
  const isTask = filters.flag('is-task');
  const selected = records.filter((record) => {
    if (!all && !isRunning(record)) return false;
    if (isTask === true) return false;
    if (before && record.created >= before.created) return false;
    if (since && record.created <= since.created) return false;
    if (statuses.length > 0 && !statuses.includes(shownStatus(record))) return false;
    if (
      exited.length > 0 &&
      (isRunning(record) || record.state.startedAt.startsWith('0001') || !exited.includes(record.state.exitCode))
    )
      return false;
    if (ancestors.length > 0 && !ancestors.some((image) => image !== '' && context.isAncestor(record.image, image)))
      return false;
    if (!filters.matchesLabels(record.config.Labels)) return false;
    if (ids && !ids.has(record.id)) return false;
    if (!filters.matchesPattern('name', record.name) && !filters.matchesPattern('name', record.name.slice(1)))
      return false;
    if (!matchesVolume(filters.get('volume'), record) || !matchesNetwork(filters.get('network'), record)) return false;
    if (!filters.matchesExactly('health', record.state.health?.status ?? 'none')) return false;
    return matchesPorts(publish, expose, record);
  });
  return limit > 0 ? selected.slice(0, limit) : selected;
}

/** Exit codes are integers of 64 bits there, whatever a process can end with. */
function parseExitCode(code: string): number {
  const refuse = (why: string): EngineError =>
    invalid(`invalid filter 'exited=${code}': strconv.Atoi: parsing ${JSON.stringify(code)}: ${why}`);
  if (!/^[+-]?\d+$/.test(code)) throw refuse('invalid syntax');
  const digits = code.replace(/^[+-]?0*/, '');
  // A longer number is not taken apart.
  const isTooLong = digits.length > MAX_INT64.toString().length;
  if (isTooLong || BigInt(digits) > MAX_INT64 + (code.startsWith('-') ? 1n : 0n)) throw refuse('value out of range');
  return Number(code);
}

/**
 * Returns the IDs that begin with one of these texts, each of which must tell one container from all others. Work grows
 * with the number of containers and the lengths of an ID, not with the number of texts.
 */
function idsWithPrefix(prefixes: readonly string[], records: readonly ContainerRecord[]): ReadonlySet<string> {
  const wanted = new Set(prefixes);
  const lengths = [...new Set(prefixes.map(({ length }) => length))].filter((length) => length > 0 && length <= 64);
  const found = new Map<string, string | undefined>();
  for (const { id } of records) {
    for (const length of lengths) {
      const prefix = id.slice(0, length);
      if (wanted.has(prefix)) found.set(prefix, found.has(prefix) ? undefined : id);
    }
  }
  return new Set([...found.values()].filter((id) => id !== undefined));
}

function bound(filters: Filters, key: 'before' | 'since', context: FilterContext): ContainerRecord | undefined {
  const [reference] = filters.get(key);
  return reference === undefined ? undefined : context.find(reference);
}

function matchesVolume(wanted: readonly string[], record: ContainerRecord): boolean {
  return (
    wanted.length === 0 ||
    record.mounts.some(({ Name, Source, Destination }) =>
      wanted.some((value) => value === Name || value === Source || value === Destination),
    )
  );
}

function matchesNetwork(wanted: readonly string[], record: ContainerRecord): boolean {
  return (
    wanted.length === 0 ||
    Object.entries(record.networks).some(([name, { endpoint }]) =>
      wanted.some((value) => value === name || endpoint?.networkId.startsWith(value) === true),
    )
  );
}

function badState(key: string, kind: string, value: string, known: readonly string[]): EngineError {
  return invalid(
    `invalid filter '${key}=${value}': invalid value for ${kind} (${value}): must be one of ${known.join(', ')}`,
  );
}

interface PortRange {
  readonly from: number;
  readonly to: number;
  readonly protocol: string;
}

function parsePorts(text: string): PortRange {
  const match = /^(\d+)(?:-(\d+))?(?:\/(tcp|udp|sctp))?$/.exec(text);
  const [from, to] = [Number(match?.[1]), Number(match?.[2] ?? match?.[1])];
  if (!match || to < from || to > 65_535) throw invalid(`invalid filter: ${text} is not a port or a range of ports`);
  return { from, to, protocol: match[3] ?? 'tcp' };
}

function matchesPorts(publish: readonly PortRange[], expose: readonly PortRange[], record: ContainerRecord): boolean {
  if (publish.length === 0 && expose.length === 0) return true;
  // Both filters look at running containers only: published ports are those of the host, exposed ones those of the
  // container.
  const ports = portList(record);
  const within = (port: number | undefined, type: string) => (range: PortRange) =>
    port !== undefined && range.protocol === type && port >= range.from && port <= range.to;
  if (publish.length > 0 && !ports.some((port) => publish.some(within(port.PublicPort, port.Type)))) return false;
  return expose.length === 0 || ports.some((port) => expose.some(within(port.PrivatePort, port.Type)));
}
