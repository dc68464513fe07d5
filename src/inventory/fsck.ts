/** Checks a data root: every byte has an owner, or is a finding. */
import { dirname, join } from 'node:path';
import type { Place, PlaceKind } from '../ports/inventory.js';
import { syncDirectory } from '../sys/files/durable-file.js';
import { STORE_PLACES } from '../storage/drivers/index.js';
import { storesWithData } from '../storage/drivers/selection.js';
import type { WorkerPool } from '../workers/pool.js';
import { type Finding, findOrphans, type Owners } from './orphans.js';

export interface FsckReport {
  readonly dataRoot: string;
  /** The storage drivers that have data there; `supervisor-snapshotter` for snapshots of the supervisor. */
  readonly drivers: readonly string[];
  /** Bytes on the disk before a repair. */
  readonly bytes: number;
  readonly kinds: readonly { readonly kind: PlaceKind; readonly count: number; readonly bytes: number }[];
  readonly findings: readonly (Finding & { readonly outcome: 'repaired' | 'kept' })[];
}

export interface FsckDeps {
  readonly dataRoot: string;
  readonly pool: Pick<WorkerPool, 'run'>;
  readonly owners: () => Promise<Owners> | Owners;
  /** The storage driver of the running daemon, which alone is checked; undefined: all are. */
  readonly driver?: string;
}

/**
 * While a daemon runs, something that is being made looks like an orphan for a moment. So a finding must last this
 * long.
 */
const DOUBT_MS = 1_000;

/** Checks the data root. @param repair if true, findings that nobody can miss are deleted; else nothing is changed. */
export async function checkDataRoot(
  { dataRoot, pool, owners, driver }: FsckDeps,
  repair: boolean,
): Promise<FsckReport> {
  const asked = { dataRoot, stores: STORE_PLACES, ...(driver === undefined ? {} : { driver }) };
  const places = await pool.run('take-inventory', { ...asked, known: new Map() });
  let known = await owners();
  let findings = findOrphans(places, known);
  if (known.isRunning && findings.length > 0) {
    await new Promise((resolve) => setTimeout(resolve, DOUBT_MS));
    const again = await pool.run('take-inventory', {
      ...asked,
      known: new Map(places.map((place) => [place.path, place])),
    });
    known = await owners();
    const doubtless = new Set(findOrphans(again, known).map(({ path }) => path));
    findings = findings.filter(({ path }) => doubtless.has(path));
  }
  if (repair)
    await remove(
      dataRoot,
      pool,
      findings.filter(({ isRepairable }) => isRepairable),
    );
  return {
    dataRoot,
    drivers: storesWithData(dataRoot),
    bytes: places.reduce((sum, { bytes }) => sum + bytes, 0),
    kinds: sumKinds(places),
    findings: findings.map((finding) => ({
      ...finding,
      outcome: repair && finding.isRepairable ? 'repaired' : 'kept',
    })),
  };
}

/** Removes findings. Records go before what they describe, so that an interrupted repair makes nothing worse. */
async function remove(dataRoot: string, pool: Pick<WorkerPool, 'run'>, findings: readonly Finding[]): Promise<void> {
  const isRecord = ({ kind }: Finding): boolean => kind.endsWith('-record') || kind === 'image';
  for (const batch of [findings.filter(isRecord), findings.filter((finding) => !isRecord(finding))]) {
    if (batch.length === 0) continue;
    await pool.run('remove-trees', { paths: batch.map(({ path }) => join(dataRoot, path)) });
    for (const dir of new Set(batch.map(({ path }) => dirname(path)))) await syncDirectory(join(dataRoot, dir));
  }
}

function sumKinds(places: readonly Place[]): FsckReport['kinds'] {
  const sums = new Map<PlaceKind, { count: number; bytes: number }>();
  for (const { kind, bytes } of places) {
    const sum = sums.get(kind) ?? { count: 0, bytes: 0 };
    sum.count++;
    sum.bytes += bytes;
    sums.set(kind, sum);
  }
  return [...sums].map(([kind, sum]) => ({ kind, ...sum })).sort((a, b) => b.bytes - a.bytes);
}
