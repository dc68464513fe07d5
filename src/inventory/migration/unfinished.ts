/**
 * The mark of a migration that is not finished. A daemon that starts in between may change what was copied, so it takes
 * the mark away: the migration cannot go on then, only begin anew.
 */
import { join } from 'node:path';
import type { Logger } from '../../ports/logger.js';
import { readRecord, removeRecord } from '../../storage/record-store.js';

/** Its name below the data root. */
export const UNFINISHED = 'migration.json';

export interface Unfinished {
  readonly from: string;
  readonly to: string;
}

export async function readMigration(dataRoot: string): Promise<Unfinished | undefined> {
  return (await readRecord(join(dataRoot, UNFINISHED))) as Unfinished | undefined;
}

/** Takes the mark away, and tells the operator what remains to be done. */
export async function giveUpMigration(dataRoot: string, log: Logger): Promise<void> {
  const unfinished = await readMigration(dataRoot);
  if (!unfinished) return;
  await removeRecord(join(dataRoot, UNFINISHED));
  const { from, to } = unfinished;
  log.warn(
    { from, to },
    `a migration was not finished and cannot go on, as a daemon was started: \`engined migrate --remove ${to}\` ` +
      'removes what it has copied',
  );
}
