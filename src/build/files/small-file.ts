/** Reads small files of a context: Dockerfiles and ignore files. */
import { open, stat } from 'node:fs/promises';
import { type EngineError, invalid, isEngineError } from '../../errors/engine-error.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import { cleanPath } from './paths.js';

/** The words of BuildKit for a path that leads to no file, by the codes of the errors. */
const UNREADABLE: ReadonlyMap<string, (path: string) => string> = new Map<string, (path: string) => string>([
  ['EISDIR', (path) => `read ${path}: is a directory`],
  ['ELOOP', () => 'too many links'],
  ['ENOTDIR', (path) => `lstat ${path}: not a directory`],
]);

/**
 * Returns the content of a file; undefined when there is none. Links on the way to it stay inside `root`.
 * @throws EngineError invalid; with the code EISDIR for a directory, ELOOP for links that lead to each other, ENOTDIR
 * for a path through a file.
 */
export async function readSmallFile(root: string, path: string, maxBytes: number): Promise<Buffer | undefined> {
  const directory = await open(root, 'r');
  try {
    const fd = openInRoot(directory.fd, cleanPath(path), O_PATH);
    try {
      return await readWhole(`/proc/self/fd/${fd}`, path, maxBytes);
    } finally {
      closeFd(fd);
    }
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT') return undefined;
    throw UNREADABLE.has(code) ? unreadable(path, code) : error;
  } finally {
    await directory.close();
  }
}

/** Small files by their paths, or why one that is there cannot be read. Those that are missing are left out. */
export type SmallFiles = ReadonlyMap<string, Buffer | Error>;

/** Reads several files. @throws EngineError as `read` does, but for what is no file. */
export async function readSmallFiles(
  paths: readonly string[],
  read: (path: string) => Promise<Buffer | undefined>,
): Promise<SmallFiles> {
  const found = new Map<string, Buffer | Error>();
  for (const path of paths) {
    try {
      const content = await read(path);
      if (content !== undefined) found.set(path, content);
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      found.set(path, error);
    }
  }
  return found;
}

/** The same as `read`, but what is no file counts as none: an ignore file may be missing. */
export async function orNoFile(read: Promise<Buffer | undefined>): Promise<Buffer | undefined> {
  return read.catch((error: unknown) => {
    if (isUnreadable(error)) return undefined;
    throw error;
  });
}

/** Tells whether there is something at the path that is no file. */
export function isUnreadable(error: unknown): error is EngineError {
  return isEngineError(error, 'invalid') && UNREADABLE.has(codeOf(error));
}

async function readWhole(at: string, path: string, maxBytes: number): Promise<Buffer> {
  // To open a FIFO would take a thread for ever, and to open a device has effects on the host.
  const found = await stat(at);
  if (found.isDirectory()) throw unreadable(path, 'EISDIR');
  if (!found.isFile()) throw invalid(`${path} is not a file`);
  if (found.size > maxBytes) throw invalid(`${path} is too large`);
  const file = await open(at, 'r');
  try {
    return await file.readFile();
  } finally {
    await file.close();
  }
}

function unreadable(path: string, code: string): Error {
  return invalid(UNREADABLE.get(code)?.(path) ?? code, { code });
}

function codeOf(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  return typeof code === 'string' ? code : '';
}
