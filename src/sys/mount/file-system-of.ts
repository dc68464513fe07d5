/** Tells which file system a path is on, from the mount table. */
import { readFileSync } from 'node:fs';
import { unescapeField } from './mount.js';

export interface FileSystem {
  /** Such as `ext4`. */
  readonly type: string;
  readonly options: readonly string[];
  /** A device, or the name that the file system has for it. */
  readonly source: string;
}

/** The file system that holds a path, as in the mount table. The path has no links. */
export function fileSystemOf(path: string): FileSystem {
  const lines = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ').map(unescapeField));
  let found: FileSystem = { type: 'unknown', options: [], source: '' };
  let longest = -1;
  for (const [source = '', point = '', type = '', options = ''] of lines) {
    const covers = path === point || path.startsWith(point === '/' ? '/' : `${point}/`);
    if (covers && point.length >= longest) {
      longest = point.length;
      found = { type, options: options.split(','), source };
    }
  }
  return found;
}
