/** A directory tree as lines of text, so that two trees can be compared and a difference reads well. */
import { createHash } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { getXattr, listXattrs } from '../../src/sys/files/xattr.js';

/**
 * One line per entry: path, mode, owner, modification time (not of directories, unless asked for), type with content,
 * target or device, the first path of the same inode, file capabilities and user attributes. Names need not be UTF-8.
 */
export function describeTree(root: string, options: { readonly directoryTimes?: boolean } = {}): string[] {
  const lines: string[] = [];
  const firstPath = new Map<bigint, string>();
  const visit = (path: string): void => {
    const at = Buffer.from(`${Buffer.from(root).toString('latin1')}/${path}`, 'latin1');
    const stat = lstatSync(at, { bigint: true });
    const facts = [path, (stat.mode & 0o7777n).toString(8), `${stat.uid}:${stat.gid}`];
    if (!stat.isDirectory() || options.directoryTimes) facts.push(`mtime ${stat.mtimeNs}`);
    if (stat.isDirectory()) facts.push('directory');
    else if (stat.isFile())
      facts.push(`file ${stat.size} ${createHash('sha256').update(readFileSync(at)).digest('hex').slice(0, 16)}`);
    else if (stat.isSymbolicLink()) facts.push(`link ${readlinkSync(at, 'latin1')}`);
    else if (stat.isFIFO()) facts.push('fifo');
    else facts.push(`${stat.isCharacterDevice() ? 'char' : 'block'} ${stat.rdev}`);
    if (!stat.isDirectory() && stat.nlink > 1n) {
      const first = firstPath.get(stat.ino);
      if (first === undefined) firstPath.set(stat.ino, path);
      else facts.push(`same as ${first}`);
    }
    for (const name of listXattrs(at)) {
      if (name === 'security.capability' || /^user\.(?!overlay)/.test(name))
        facts.push(`${name}=${getXattr(at, name)?.toString('hex')}`);
    }
    lines.push(facts.join(' | '));
    if (stat.isDirectory())
      for (const name of readdirSync(at, 'latin1').sort()) visit(path === '' ? name : `${path}/${name}`);
  };
  visit('');
  return lines;
}

/** Every container finds these in its root besides its image's files. */
const INIT_PATHS = new Set([
  '.dockerenv',
  'dev',
  'dev/console',
  'dev/pts',
  'dev/shm',
  'etc',
  'etc/hostname',
  'etc/hosts',
  'etc/mtab',
  'etc/resolv.conf',
  'proc',
  'sys',
]);

/** Paths, or lines of `describeTree`, without those. */
export function withoutInit(lines: readonly string[]): string[] {
  return lines.filter((line) => !INIT_PATHS.has(line.split(' | ', 1)[0] ?? ''));
}
