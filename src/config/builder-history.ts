/** The type of `builder.history`, which says how many builds are remembered. */
import { parseDuration } from '../build/dockerfile/go-values.js';
import { invalid } from '../errors/engine-error.js';
import { isObject, rejectRest, type ValueType } from './value-types.js';

export interface BuilderHistory {
  /** A build is forgotten when it is older, and more than `maxEntries` are newer. */
  readonly maxAgeMs: number;
  readonly maxEntries: number;
}

/** As many as dockerd keeps, and as long. */
export const DEFAULT_BUILDER_HISTORY: BuilderHistory = { maxAgeMs: 48 * 3_600_000, maxEntries: 50 };

const NANOSECONDS_PER_MS = 1e6;
const MS_PER_SECOND = 1000;

export const builderHistory: ValueType<BuilderHistory> = {
  label: '',
  repeatable: false,
  schema: {
    type: 'object',
    properties: { maxAge: { type: 'string' }, maxEntries: { type: 'integer', minimum: 0 } },
    additionalProperties: false,
  },
  fromFlag: () => {
    throw invalid('can be set in the configuration file only');
  },
  fromFile: (value) => {
    if (!isObject(value)) throw invalid('must be an object');
    const { maxAge, maxEntries = DEFAULT_BUILDER_HISTORY.maxEntries, ...rest } = value;
    rejectRest(rest, 'builder.history');
    if (typeof maxEntries !== 'number' || !Number.isSafeInteger(maxEntries) || maxEntries < 0)
      throw invalid('maxEntries must be a whole number that is not negative');
    return { maxAgeMs: maxAge === undefined ? DEFAULT_BUILDER_HISTORY.maxAgeMs : readAge(maxAge), maxEntries };
  },
};

/** Digits alone are seconds. */
function readAge(value: unknown): number {
  try {
    if (typeof value === 'string') {
      const ms = /^\d{1,12}$/.test(value) ? Number(value) * MS_PER_SECOND : parseDuration(value) / NANOSECONDS_PER_MS;
      if (ms >= 0) return ms;
    }
  } catch {
    // The message below says it better than that of the parser.
  }
  throw invalid('maxAge must be a duration such as "48h", or a number of seconds in quotes');
}
