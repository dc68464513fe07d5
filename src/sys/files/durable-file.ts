/** Files that are replaced as a whole: after a crash there is the old one or the new one. */
import { randomBytes } from 'node:crypto';
import { open, rename, rm, writeFile, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';

const TEMP = /\.tmp-[0-9a-f]{12}$/;

/** Returns the path where the next content of `path` is written first. */
export function temporaryPath(path: string): string {
  return `${path}.tmp-${randomBytes(6).toString('hex')}`;
}

/** True for the name of a file that a write left behind when the daemon was killed. */
export function isTemporary(name: string): boolean {
  return TEMP.test(name);
}

/**
 * Writes a file, with mode 0600; durable when the promise resolves. Concurrent writers of one path are safe, and the
 * last one to finish wins. The directory must exist.
 * @throws the errno error of the file system, with nothing changed.
 */
export async function replaceFile(path: string, data: string | Uint8Array | AsyncIterable<string>): Promise<void> {
  const temp = temporaryPath(path);
  try {
    await writeSynced(temp, data, 'wx');
    await rename(temp, path);
  } catch (error) {
    await rm(temp, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** Writes a file, with mode 0600. Its content is on the disk when the promise resolves, its name need not be. */
export async function writeSynced(
  path: string,
  data: string | Uint8Array | AsyncIterable<string>,
  flags: 'w' | 'wx',
): Promise<void> {
  const file = await open(path, flags, 0o600);
  try {
    await writeFile(file, data);
    await file.sync();
  } finally {
    await file.close();
  }
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
