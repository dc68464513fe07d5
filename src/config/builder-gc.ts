/** The type of `builder.gc`, which says how a build cache is kept small. */
import type { GcSettings, GcSize } from '../build/cache/gc-rules.js';
import { parseDuration } from '../build/dockerfile/go-values.js';
import { invalid, messageOf } from '../errors/engine-error.js';
import { isObject, isStrings, parseBytes, rejectRest, type ValueType } from './value-types.js';

export interface BuilderGc extends GcSettings {
  readonly enabled: boolean;
}

/** A daemon that was told nothing has this. */
export const DEFAULT_BUILDER_GC: BuilderGc = {
  enabled: true,
  defaults: { reservedSpace: 0, maxUsedSpace: 0, minFreeSpace: 0 },
  policy: undefined,
};

/** Names of the filters of a build cache's records. */
const FILTERS = new Set([
  'description',
  'id',
  'immutable',
  'inuse',
  'label',
  'mutable',
  'parents',
  'private',
  'shared',
  'type',
  'unused-for',
  'until',
]);
const AGES = new Set(['unused-for', 'until']);
const NANOSECONDS_PER_MS = 1e6;
const SIZES = ['reservedSpace', 'maxUsedSpace', 'minFreeSpace', 'keepStorage'];
const DEFAULT_SIZES = ['defaultReservedSpace', 'defaultMaxUsedSpace', 'defaultMinFreeSpace', 'defaultKeepStorage'];
const size = { type: 'string' };

export const builderGc: ValueType<BuilderGc> = {
  label: '',
  repeatable: false,
  schema: {
    type: 'object',
    properties: {
      enabled: { type: 'boolean' },
      ...Object.fromEntries(DEFAULT_SIZES.map((name) => [name, size])),
      policy: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            ...Object.fromEntries(SIZES.map((name) => [name, size])),
            keepDuration: { type: 'string' },
            filter: { type: 'array', items: { type: 'string' } },
            all: { type: 'boolean' },
          },
          additionalProperties: false,
        },
      },
    },
    additionalProperties: false,
  },
  fromFlag: () => {
    throw invalid('can be set in the configuration file only');
  },
  fromFile: (value) => {
    if (!isObject(value)) throw invalid('must be an object');
    const { enabled = true, policy, ...rest } = value;
    if (typeof enabled !== 'boolean') throw invalid('enabled must be true or false');
    if (policy !== undefined && !Array.isArray(policy)) throw invalid('policy must be an array');
    const [defaults, others] = takeSizes(rest, DEFAULT_SIZES, '');
    rejectRest(others, 'builder.gc');
    return { enabled, defaults, policy: policy?.map(readRule) };
  },
};

function readRule(value: unknown): NonNullable<GcSettings['policy']>[number] {
  if (!isObject(value)) throw invalid('policy must be an array of objects');
  const { filter = [], all = false, keepDuration, ...rest } = value;
  if (typeof all !== 'boolean') throw invalid('policy: all must be true or false');
  if (!isStrings(filter)) throw invalid('policy: filter must be an array of strings');
  const [sizes, others] = takeSizes(rest, SIZES, 'policy: ');
  rejectRest(others, 'builder.gc: policy');
  let keepDurationMs = keepDuration === undefined ? 0 : readDuration(keepDuration, 'policy: keepDuration');
  for (const text of filter) keepDurationMs = readFilter(text) ?? keepDurationMs;
  return { ...sizes, all, keepDurationMs, filter: filter.filter((text) => !AGES.has(nameOf(text))) };
}

/** Reads the members that are sizes, the last of which is the older name of the first. Returns the others, too. */
function takeSizes(
  members: Readonly<Record<string, unknown>>,
  names: readonly string[],
  context: string,
): [sizes: GcSettings['defaults'], others: Readonly<Record<string, unknown>>] {
  const [reserved, maxUsed = 0, minFree = 0, kept = 0] = names.map((name) =>
    Object.hasOwn(members, name) ? readSize(members[name], `${context}${name}`) : 0,
  );
  const others = Object.fromEntries(Object.entries(members).filter(([name]) => !names.includes(name)));
  return [{ reservedSpace: reserved || kept, maxUsedSpace: maxUsed, minFreeSpace: minFree }, others];
}

/** Checks a filter. Returns the ms of one that asks for an age. */
function readFilter(text: string): number | undefined {
  const at = text.indexOf('=');
  if (at < 1) throw invalid(`policy: filter must have the form <name>=<value>, not ${JSON.stringify(text)}`);
  const name = nameOf(text);
  if (!FILTERS.has(name))
    throw invalid(`policy: unknown filter ${JSON.stringify(name)}: must be one of ${[...FILTERS].join(', ')}`);
  return AGES.has(name) ? readDuration(text.slice(at + 1), `policy: filter ${name}`) : undefined;
}

function nameOf(filter: string): string {
  return filter.slice(0, filter.indexOf('=')).replace(/[!~]$/, '');
}

function readDuration(value: unknown, name: string): number {
  try {
    if (typeof value === 'string') return Math.max(0, parseDuration(value) / NANOSECONDS_PER_MS);
  } catch {
    // The message below says it better than that of the parser.
  }
  throw invalid(`${name} must be a duration such as "48h"`);
}

function readSize(value: unknown, name: string): GcSize {
  if (value === '') return 0;
  if (typeof value !== 'string') throw invalid(`${name} must be a size such as "10GB"`);
  // Newer daemons accept a percentage of the disk as a size.
  if (/^\d{1,2}%$/.test(value)) return { percent: Number.parseInt(value, 10) };
  try {
    return parseBytes(value);
  } catch (error) {
    throw invalid(`${name}: ${messageOf(error)}`, { cause: error });
  }
}
