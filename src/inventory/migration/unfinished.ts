/**
 * The mark of a migration that is not finished. A daemon that starts in between may change what was copied, so it gives
 * the migration up: that cannot go on then, only begin anew. The mark stays until the copy is removed, because the
 * other driver has what was not copied.
 */
import { join } from 'node:path';
import type { Logger } from '../../ports/logger.js';
import { readRecord, writeRecord } from '../../storage/record-store.js';

/** Its name below the data root. */
export const UNFINISHED = 'migration.json';

export interface Unfinished {
  readonly from: string;
  readonly to: string;
  readonly isGivenUp?: true;
}

export async function readMigration(dataRoot: string): Promise<Unfinished | undefined> {
  return (await readRecord(join(dataRoot, UNFINISHED))) as Unfinished | undefined;
}

/** Gives an unfinished migration up, and tells the operator what remains to be done. */
export async function giveUpMigration(dataRoot: string, log: Logger): Promise<void> {
  const unfinished = await readMigration(dataRoot);
  if (!unfinished || unfinished.isGivenUp) return;
  const { from, to } = unfinished;
  await writeRecord(join(dataRoot, UNFINISHED), { from, to, isGivenUp: true });
  log.warn(
    { from, to },
    `a migration was not finished and cannot go on, as a daemon was started: \`engined migrate --remove ${to}\` ` +
      'removes what it has copied',
  );
}
