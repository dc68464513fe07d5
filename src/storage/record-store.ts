/** Small versioned JSON documents on disk, each replaced as a whole: after a crash there is the old one or the new one. */
import { randomBytes } from 'node:crypto';
import { open, readFile, rename, rm, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { dataLoss, messageOf } from '../errors/engine-error.js';

/** Version of the envelope, not of what is in it. */
const VERSION = 1;
const TEMP = /\.tmp-[0-9a-f]{12}$/;

/**
 * Writes `value` to `path`; durable when the promise resolves. Concurrent writers of one path are safe, and the last
 * one to finish wins. The directory must exist.
 * @throws the errno error of the file system, with nothing changed.
 */
export async function writeRecord(path: string, value: unknown): Promise<void> {
  const temp = `${path}.tmp-${randomBytes(6).toString('hex')}`;
  try {
    const file = await open(temp, 'wx', 0o600);
    try {
      await file.writeFile(recordText(value));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temp, path);
  } catch (error) {
    await rm(temp, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** The text of a record, for writers with a durability of their own. */
export function recordText(value: unknown): string {
  return JSON.stringify({ version: VERSION, value });
}

/**
 * Reads what `writeRecord` wrote; undefined when there is none.
 * @throws EngineError data-loss for a file that is damaged or of a newer version.
 */
export async function readRecord(path: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return parseRecord(path, text);
}

/** The value in the text of a record; `path` only names it in errors. @throws EngineError data-loss as `readRecord`. */
export function parseRecord(path: string, text: string): unknown {
  let record: unknown;
  try {
    record = JSON.parse(text);
  } catch (error) {
    throw dataLoss(`record ${path} is damaged: ${messageOf(error)}`, { code: 'RECORD_DAMAGED', cause: error });
  }
  if (typeof record !== 'object' || record === null || !('version' in record) || !('value' in record)) {
    throw dataLoss(`record ${path} is damaged: not a record`, { code: 'RECORD_DAMAGED' });
  }
  if (record.version !== VERSION) {
    throw dataLoss(`record ${path} has version ${String(record.version)}, this daemon reads version ${VERSION}`, { code: 'RECORD_VERSION' });
  }
  return record.value;
}

/** Removes a record durably. Idempotent. */
export async function removeRecord(path: string): Promise<void> {
  await rm(path, { force: true });
  await syncDirectory(dirname(path));
}

/** True for the name of a file that a write left behind when the daemon was killed. */
export function isRecordLeftover(name: string): boolean {
  return TEMP.test(name);
}

interface DirectorySync {
  readonly running: Promise<void>;
  next: Promise<void> | undefined;
}

const directorySyncs = new Map<string, DirectorySync>();

/**
 * Makes renames and removals in a directory durable. Callers that come while a sync is under way share the one after
 * it, so a burst of records costs two syncs of the directory and not one each.
 */
export function syncDirectory(path: string): Promise<void> {
  const current = directorySyncs.get(path);
  if (!current) return startSync(path);
  // The one under way may have begun before our change: wait for it, then share a new one.
  current.next ??= current.running.catch(() => undefined).then(() => startSync(path));
  return current.next;
}

function startSync(path: string): Promise<void> {
  const running = fsyncDirectory(path).finally(() => {
    const sync = directorySyncs.get(path);
    if (sync?.running === running && !sync.next) directorySyncs.delete(path);
  });
  directorySyncs.set(path, { running, next: undefined });
  return running;
}

async function fsyncDirectory(path: string): Promise<void> {
  let directory: FileHandle | undefined;
  try {
    directory = await open(path, 'r');
    await directory.sync();
  } finally {
    await directory?.close();
  }
}
