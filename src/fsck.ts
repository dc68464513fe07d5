/** `engined fsck`: the check of a data root that no daemon uses. */
import { access } from 'node:fs/promises';
import { foundDataRoot } from './composition/data-root.js';
import { checkState } from './inventory/state-version.js';
import { isEngineError, messageOf } from './errors/engine-error.js';
import type { LoadedConfig } from './config/settings.js';
import { checkDataRoot, type FsckReport } from './inventory/fsck.js';
import { readOwners } from './inventory/offline-owners.js';
import { lockDirectory } from './sys/files/directory-lock.js';
import { readIdMaps } from './sys/users/remapped-user.js';
import { createWorkerPool } from './workers/pool.js';

/** These are the exit codes of fsck(8). */
const FOUND_NOTHING = 0;
const REPAIRED = 1;
const LEFT = 4;
const FAILED = 8;

/** Checks the data root and prints each finding on a line. Returns the exit code. */
export async function runFsck(
  { config }: LoadedConfig,
  options: { readonly repair: boolean },
  print: (line: string) => void,
  complain: (line: string) => void,
): Promise<number> {
  const pool = createWorkerPool({ maxThreads: 1 });
  try {
    // This is asked first, because locking would make a directory that the operator named by mistake.
    await access(config.dataRoot);
    const lock = await lockDirectory('data-root', config.dataRoot);
    try {
      await checkState(lock.path);
      const maps = config.usernsRemap === '' ? undefined : readIdMaps(config.usernsRemap);
      const { dataRoot } = foundDataRoot(lock.path, maps);
      await access(dataRoot);
      const report = await checkDataRoot({ dataRoot, pool, owners: () => readOwners(dataRoot) }, options.repair);
      for (const line of describe(report)) print(line);
      if (report.findings.length === 0) return FOUND_NOTHING;
      return report.findings.every(({ outcome }) => outcome === 'repaired') ? REPAIRED : LEFT;
    } finally {
      await lock.release();
    }
  } catch (error) {
    complain(`engined fsck: ${isEngineError(error) ? error.message : messageOf(error)}`);
    return FAILED;
  } finally {
    await pool.close();
  }
}

function* describe({ dataRoot, drivers, bytes, kinds, findings }: FsckReport): Generator<string> {
  yield `${dataRoot}: ${bytes} bytes`;
  if (drivers.length > 1) yield `data of the storage drivers ${drivers.join(', ')}`;
  for (const { kind, count, bytes: sum } of kinds)
    yield `  ${kind.padEnd(12)} ${String(count).padStart(8)} ${String(sum).padStart(16)}`;
  for (const { path, reason, bytes: size, outcome } of findings) yield `${outcome}: ${path}: ${reason} (${size} bytes)`;
  yield findings.length === 0
    ? 'nothing to repair'
    : `${findings.length} found, ${findings.filter(({ outcome }) => outcome === 'repaired').length} repaired`;
}
