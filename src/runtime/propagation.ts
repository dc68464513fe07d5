/** Decides the propagation of bind mounts (man 7 mount_namespaces). */
import { readFile, realpath } from 'node:fs/promises';
import { invalid } from '../errors/engine-error.js';
import type { MountPoint } from '../ports/container.js';

/**
 * Returns the `rootfsPropagation` that the mounts need; undefined: the runtime's default.
 * @throws EngineError invalid when a mount wants events of a source that sends none.
 */
export async function rootPropagation(mounts: readonly MountPoint[]): Promise<'shared' | 'rslave' | undefined> {
  const propagating = mounts.filter(({ Propagation }) => /^r?(shared|slave)$/.test(Propagation));
  if (propagating.length === 0) return undefined;
  const mountinfo = parseMountinfo(await readFile('/proc/self/mountinfo', 'utf8'));
  let shared = false;
  for (const { Source, Propagation } of propagating) {
    const wantsShared = Propagation.endsWith('shared');
    const mount = findMount(mountinfo, await realpath(Source).catch(() => Source));
    const isShared = mount?.optional.some((field) => field.startsWith('shared:')) === true;
    const isSlave = mount?.optional.some((field) => field.startsWith('master:')) === true;
    if (wantsShared && !isShared)
      throw invalid(`path ${Source} is mounted on ${mount?.path ?? '/'} but it is not a shared mount`);
    if (!isShared && !isSlave)
      throw invalid(`path ${Source} is mounted on ${mount?.path ?? '/'} but it is not a shared or slave mount`);
    shared ||= wantsShared;
  }
  return shared ? 'shared' : 'rslave';
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
