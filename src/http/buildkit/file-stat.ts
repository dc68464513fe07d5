/** Descriptions of files as clients send them, and the order in which they come. Both are not trusted. */
import type { BigIntStats } from 'node:fs';
import { invalid } from '../../errors/engine-error.js';
import type { Stat } from './proto/gen/session_pb.js';

// Bits of Go's FileMode, which are not those of the kernel.
const DIRECTORY = 0x80000000;
const SYMLINK = 0x08000000;
const DEVICE = 0x04000000;
const FIFO = 0x02000000;
const SOCKET = 0x01000000;
const SETUID = 0x00800000;
const SETGID = 0x00400000;
const CHARACTER_DEVICE = 0x00200000;
const STICKY = 0x00100000;
const IRREGULAR = 0x00080000;

const MAX_PATH_CHARS = 4096;
const MAX_NAME_CHARS = 255;

export type FileKind = 'file' | 'directory' | 'symlink' | 'fifo' | 'other';

/** The bits of Go's FileMode that say the kind. */
const TYPES: Readonly<Record<FileKind, number>> = {
  file: 0,
  directory: DIRECTORY,
  symlink: SYMLINK,
  fifo: FIFO,
  other: IRREGULAR,
};

export function kindOf(goMode: number): FileKind {
  if ((goMode & DIRECTORY) !== 0) return 'directory';
  if ((goMode & SYMLINK) !== 0) return 'symlink';
  const type = goMode & (DEVICE | FIFO | SOCKET | CHARACTER_DEVICE | IRREGULAR);
  return type === 0 ? 'file' : type === FIFO ? 'fifo' : 'other';
}

export function kindOfFile(stat: BigIntStats): FileKind {
  if (stat.isDirectory()) return 'directory';
  if (stat.isSymbolicLink()) return 'symlink';
  if (stat.isFIFO()) return 'fifo';
  return stat.isFile() ? 'file' : 'other';
}

/** Returns the permission bits of the kernel. */
export function permissionsOf(goMode: number): number {
  const special =
    ((goMode & SETUID) === 0 ? 0 : 0o4000) |
    ((goMode & SETGID) === 0 ? 0 : 0o2000) |
    ((goMode & STICKY) === 0 ? 0 : 0o1000);
  return special | (goMode & 0o777);
}

/** Returns Go's FileMode of a file of this kind. */
export function goModeOf(kind: FileKind, permissions: number): number {
  const special =
    ((permissions & 0o4000) === 0 ? 0 : SETUID) |
    ((permissions & 0o2000) === 0 ? 0 : SETGID) |
    ((permissions & 0o1000) === 0 ? 0 : STICKY);
  return (TYPES[kind] | special | (permissions & 0o777)) >>> 0;
}

/** Splits a time in nanoseconds since 1970. */
export function splitTime(nanoseconds: bigint): readonly [seconds: number, nanoseconds: number] {
  const part = ((nanoseconds % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n;
  return [Number((nanoseconds - part) / 1_000_000_000n), Number(part)];
}

/**
 * Checks that paths come in order, each below a directory that came before. So no path comes twice, none leaves the
 * root, and none leads through a link. The cost of a path is its length.
 */
export class PathOrder {
  /** The directories that are open, with the last name that came in each. */
  readonly #open: { readonly path: string; last: string }[] = [{ path: '', last: '' }];

  /**
   * Notes the next path. Returns the directories that end before it, the innermost first.
   * @throws EngineError invalid for a path that is not clean or out of order.
   */
  next(stat: Stat): string[] {
    const { path } = stat;
    const names = path.split('/');
    if (path.length > MAX_PATH_CHARS || path.includes('\0') || !names.every(isName))
      throw invalid(`escape check: the client sent the path ${JSON.stringify(path.slice(0, MAX_NAME_CHARS))}`);
    const slash = path.lastIndexOf('/');
    const parent = slash < 0 ? '' : path.slice(0, slash);
    const name = path.slice(slash + 1);
    const ended: string[] = [];
    let inner = this.#open.at(-1);
    while (inner !== undefined && inner.path !== parent) {
      this.#open.pop();
      ended.push(inner.path);
      inner = this.#open.at(-1);
    }
    if (inner === undefined || (inner.last !== '' && Buffer.compare(Buffer.from(inner.last), Buffer.from(name)) >= 0))
      throw invalid(`changes out of order: ${JSON.stringify(path.slice(0, MAX_NAME_CHARS))}`);
    inner.last = name;
    if (kindOf(stat.mode) === 'directory') this.#open.push({ path, last: '' });
    return ended;
  }

  /** Returns the directories that are still open, the innermost first, the root last. */
  rest(): string[] {
    return this.#open
      .splice(0)
      .map(({ path }) => path)
      .toReversed();
  }
}

function isName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && name.length <= MAX_NAME_CHARS;
}
