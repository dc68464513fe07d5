/** The header `X-Docker-Container-Path-Stat` tells what is at a path, as base64 of JSON. */
import { rfc3339Nano } from '../../actors/container/streams/timestamps.js';
import type { PathStat } from '../../ports/archives.js';

export function pathStatHeader({ name, sizeBytes, mode, mtimeNs, linkTarget }: PathStat): Record<string, string> {
  const json = JSON.stringify({
    name,
    size: sizeBytes,
    mode: goFileMode(mode),
    mtime: rfc3339Nano(mtimeNs),
    linkTarget,
  });
  return { 'X-Docker-Container-Path-Stat': Buffer.from(json).toString('base64') };
}

/** Converts `st_mode` (man 7 inode) to Go's fs.FileMode. */
export function goFileMode(mode: number): number {
  const special = (mode & 0o4000 ? 2 ** 23 : 0) + (mode & 0o2000 ? 2 ** 22 : 0) + (mode & 0o1000 ? 2 ** 20 : 0);
  return (GO_TYPES.get(mode & 0o170000) ?? 0) + special + (mode & 0o777);
}

const DEVICE = 2 ** 26;
const GO_TYPES: ReadonlyMap<number, number> = new Map([
  [0o040000, 2 ** 31],
  [0o120000, 2 ** 27],
  [0o060000, DEVICE],
  [0o020000, DEVICE + 2 ** 21],
  [0o010000, 2 ** 25],
  [0o140000, 2 ** 24],
]);
