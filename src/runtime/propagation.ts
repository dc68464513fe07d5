/** Decides the propagation of bind mounts (man 7 mount_namespaces). */
import { readFile, realpath } from 'node:fs/promises';
import { invalid } from '../errors/engine-error.js';
import type { MountPoint } from '../ports/container.js';
import { choosesPropagation } from '../ports/propagation.js';

export interface Propagations {
  readonly mounts: readonly MountPoint[];
  /** The `rootfsPropagation` that the mounts need; undefined: the runtime's default. */
  readonly root: 'shared' | 'rslave' | undefined;
}

/**
 * Settles the propagation of mounts. A mount that the client wanted no events for is private where its source sends
 * none. @throws EngineError invalid when a mount wants events of a source that sends none.
 */
export async function settlePropagation(given: readonly MountPoint[]): Promise<Propagations> {
  const isPropagating = ({ Propagation }: MountPoint): boolean => /^r?(shared|slave)$/.test(Propagation);
  if (!given.some(isPropagating)) return { mounts: given, root: undefined };
  const mountinfo = parseMountinfo(await readFile('/proc/self/mountinfo', 'utf8'));
  const mounts: MountPoint[] = [];
  let root: Propagations['root'];
  for (const point of given) {
    const { Source, Propagation } = point;
    if (!isPropagating(point)) {
      mounts.push(point);
      continue;
    }
    const wantsShared = Propagation.endsWith('shared');
    const mount = findMount(mountinfo, await realpath(Source).catch(() => Source));
    const isShared = mount?.optional.some((field) => field.startsWith('shared:')) === true;
    const isSlave = mount?.optional.some((field) => field.startsWith('master:')) === true;
    if (!isShared && !isSlave && !choosesPropagation(point)) {
      mounts.push({ ...point, Propagation: 'rprivate' });
      continue;
    }
    if (wantsShared && !isShared)
      throw invalid(`path ${Source} is mounted on ${mount?.path ?? '/'} but it is not a shared mount`);
    if (!isShared && !isSlave)
      throw invalid(`path ${Source} is mounted on ${mount?.path ?? '/'} but it is not a shared or slave mount`);
    mounts.push(point);
    root = wantsShared ? 'shared' : (root ?? 'rslave');
  }
  return { mounts, root };
}

interface MountInfo {
  readonly path: string;
  readonly optional: readonly string[];
}

/** Returns the mounts in mount order. */
function parseMountinfo(text: string): MountInfo[] {
  return text.split('\n').flatMap((line) => {
    const [before = ''] = line.split(' - ');
    const [, , , , path, , ...optional] = before.split(' ');
    if (path === undefined) return [];
    return [
      { path: path.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(parseInt(octal, 8))), optional },
    ];
  });
}

/** Returns the mount that a path is on: the last of those with the longest prefix. */
function findMount(mounts: readonly MountInfo[], path: string): MountInfo | undefined {
  let best: MountInfo | undefined;
  for (const mount of mounts) {
    const inside = mount.path === '/' || path === mount.path || path.startsWith(`${mount.path}/`);
    if (inside && (best === undefined || mount.path.length >= best.path.length)) best = mount;
  }
  return best;
}
