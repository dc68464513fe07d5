/** A record of the build cache as it is on the disk. */
import { randomBytes } from 'node:crypto';
import { dataLoss } from '../../errors/engine-error.js';
import type { CacheUsage } from '../../ports/build.js';
import type { NewCacheRecord } from '../../ports/build-cache.js';
import type { Digest } from '../../ports/storage.js';

export interface StoredRecord extends NewCacheRecord {
  readonly id: string;
  /** ms since 1970, as the other times. */
  readonly createdAt: number;
  readonly lastUsedAt: number | undefined;
  readonly usageCount: number;
  /** For a directory that builds write to, the name that they ask for; several may have one name. */
  readonly directoryName: string | undefined;
}

/** A record without that which its writing adds. */
export type NewStoredRecord = Omit<StoredRecord, 'createdAt' | 'lastUsedAt' | 'usageCount'> &
  Pick<NewCacheRecord, 'createdAt'>;

const ID_LENGTH = 25;
const ID = /^[0-9a-z]{25}$/;
const FILE = /^([0-9a-z]{25})\.json$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const TYPES: ReadonlySet<unknown> = new Set<CacheUsage['type']>([
  'regular',
  'internal',
  'frontend',
  'source.local',
  'source.git.checkout',
  'exec.cachemount',
]);
/** Commands of any length become descriptions, which are kept in memory. */
const MAX_DESCRIPTION_CHARS = 8192;

/** Returns a new ID in the form that clients know from other builders. */
export function newRecordId(): string {
  return BigInt(`0x${randomBytes(20).toString('hex')}`)
    .toString(36)
    .padStart(ID_LENGTH, '0')
    .slice(-ID_LENGTH);
}

export function isRecordId(name: string): boolean {
  return ID.test(name);
}

/** Returns the ID in the name of a record's file; undefined for another file. */
export function recordIdOf(fileName: string): string | undefined {
  return FILE.exec(fileName)?.[1];
}

export function shortDescription(description: string): string {
  return description.slice(0, MAX_DESCRIPTION_CHARS);
}

/** Reads a record that was written as JSON. @throws EngineError data-loss for anything else. */
export function readStoredRecord(value: unknown): StoredRecord {
  const { layer, lastUsedAt, directoryName, ...rest } = (value ?? {}) as Partial<Record<keyof StoredRecord, unknown>>;
  const isWhole =
    isText(rest.id) &&
    ID.test(rest.id) &&
    isText(rest.key) &&
    isText(rest.description) &&
    Array.isArray(rest.parents) &&
    rest.parents.every(isText) &&
    TYPES.has(rest.type) &&
    typeof rest.isEmpty === 'boolean' &&
    isCount(rest.sizeBytes) &&
    isCount(rest.createdAt) &&
    isCount(rest.usageCount) &&
    (layer === undefined || (isText(layer) && DIGEST.test(layer))) &&
    (lastUsedAt === undefined || isCount(lastUsedAt)) &&
    (directoryName === undefined || isText(directoryName));
  if (!isWhole) throw dataLoss('a record of the build cache is damaged', { code: 'RECORD_DAMAGED' });
  return {
    ...(rest as unknown as StoredRecord),
    layer: layer as Digest | undefined,
    lastUsedAt,
    directoryName,
  };
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
