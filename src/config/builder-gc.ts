/** The type of `builder.gc`, which says how a build cache is kept small. */
import { invalid, messageOf } from '../errors/engine-error.js';
import { isObject, isStrings, parseBytes, rejectRest, type ValueType } from './value-types.js';

export interface BuilderGc {
  readonly enabled: boolean;
  /** Bytes to keep when a rule names none; 0: the file does not say it. */
  readonly defaultKeepStorageBytes: number;
  readonly policy: readonly {
    readonly keepStorageBytes: number;
    readonly filter: readonly string[];
    readonly all: boolean;
  }[];
}

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
const DURATION = /^(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+$/;
const SIZES = ['reservedSpace', 'maxUsedSpace', 'minFreeSpace'];
const DEFAULT_SIZES = ['defaultReservedSpace', 'defaultMaxUsedSpace', 'defaultMinFreeSpace'];
const size = { type: 'string' };

export const builderGc: ValueType<BuilderGc> = {
  label: '',
  repeatable: false,
  schema: {
    type: 'object',
    properties: {
      enabled: { type: 'boolean' },
      defaultKeepStorage: size,
      ...Object.fromEntries(DEFAULT_SIZES.map((name) => [name, size])),
      policy: {
        type: 'array',
        items: {
          type: 'object',
          properties: {
            keepStorage: size,
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
    const { enabled = false, defaultKeepStorage = '', policy = [], ...rest } = value;
    if (typeof enabled !== 'boolean') throw invalid('enabled must be true or false');
    if (!Array.isArray(policy)) throw invalid('policy must be an array');
    rejectRest(takeSizes(rest, DEFAULT_SIZES, ''), 'builder.gc');
    return {
      enabled,
      defaultKeepStorageBytes: readSize(defaultKeepStorage, 'defaultKeepStorage'),
      policy: policy.map(readPolicy),
    };
  },
};

function readPolicy(value: unknown): BuilderGc['policy'][number] {
  if (!isObject(value)) throw invalid('policy must be an array of objects');
  const { keepStorage = '', filter = [], all = false, keepDuration, ...rest } = value;
  if (typeof all !== 'boolean') throw invalid('policy: all must be true or false');
  if (!isStrings(filter)) throw invalid('policy: filter must be an array of strings');
  if (keepDuration !== undefined) checkDuration(keepDuration, 'policy: keepDuration');
  for (const text of filter) checkFilter(text);
  rejectRest(takeSizes(rest, SIZES, 'policy: '), 'builder.gc: policy');
  return { keepStorageBytes: readSize(keepStorage, 'policy: keepStorage'), filter, all };
}

/** Checks members that are sizes. Returns the others. */
function takeSizes(
  members: Readonly<Record<string, unknown>>,
  names: readonly string[],
  context: string,
): Readonly<Record<string, unknown>> {
  for (const name of names) if (Object.hasOwn(members, name)) readSize(members[name], `${context}${name}`);
  return Object.fromEntries(Object.entries(members).filter(([name]) => !names.includes(name)));
}

function checkFilter(text: string): void {
  const at = text.indexOf('=');
  if (at < 1) throw invalid(`policy: filter must have the form <name>=<value>, not ${JSON.stringify(text)}`);
  const name = text.slice(0, at).replace(/[!~]$/, '');
  if (!FILTERS.has(name))
    throw invalid(`policy: unknown filter ${JSON.stringify(name)}: must be one of ${[...FILTERS].join(', ')}`);
  if (name === 'unused-for' || name === 'until') checkDuration(text.slice(at + 1), `policy: filter ${name}`);
}

function checkDuration(value: unknown, name: string): void {
  if (typeof value !== 'string' || !DURATION.test(value)) throw invalid(`${name} must be a duration such as "48h"`);
}

function readSize(value: unknown, name: string): number {
  if (value === '') return 0;
  if (typeof value !== 'string') throw invalid(`${name} must be a size such as "10GB"`);
  // Newer daemons accept a percentage of the disk as a size.
  if (/^\d{1,2}%$/.test(value)) return 0;
  try {
    return parseBytes(value);
  } catch (error) {
    throw invalid(`${name}: ${messageOf(error)}`, { cause: error });
  }
}
