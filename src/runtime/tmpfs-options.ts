/** Mount options of tmpfs mounts. */
import { invalid } from '../errors/engine-error.js';
import type { MountRequest } from '../ports/container.js';

const DEFAULTS = ['noexec', 'nosuid', 'nodev', 'rprivate'];

/** Flags in a group exclude each other: the last one given counts. */
const GROUPS: readonly (readonly string[])[] = [
  ['ro', 'rw'],
  ['exec', 'noexec'],
  ['suid', 'nosuid'],
  ['dev', 'nodev'],
  ['sync', 'async'],
  ['dirsync'],
  ['remount'],
  ['mand', 'nomand'],
  ['atime', 'noatime', 'relatime', 'norelatime', 'strictatime', 'nostrictatime'],
  ['diratime', 'nodiratime'],
  ['bind', 'rbind'],
  ['private', 'rprivate', 'shared', 'rshared', 'slave', 'rslave', 'unbindable', 'runbindable'],
  ['defaults'],
];
const GROUP_OF: ReadonlyMap<string, string> = new Map(
  GROUPS.flatMap((group) => group.map((flag) => [flag, group[0] ?? ''] as const)),
);
/** Options with a value (man 5 tmpfs). */
const DATA = new Set(['size', 'mode', 'uid', 'gid', 'nr_inodes', 'nr_blocks', 'mpol']);

/**
 * Merges the options of `Tmpfs: {"/x": "rw,size=64m"}` with the defaults, each kind once.
 * @throws EngineError invalid `Invalid tmpfs option ["x"]`.
 */
export function mergeTmpfsOptions(given: string): string[] {
  const merged = new Map<string, string>();
  for (const option of [...DEFAULTS, ...given.split(',').filter(Boolean)]) {
    const name = option.split('=')[0] ?? '';
    const key = option.includes('=') ? (DATA.has(name) ? name : undefined) : GROUP_OF.get(option);
    if (key === undefined) throw invalid(`Invalid tmpfs option ${JSON.stringify([option])}`);
    merged.delete(key);
    merged.set(key, option);
  }
  return [...merged.values()];
}

/** Returns the options of a mount of type tmpfs in the same form. */
export function tmpfsOptionsOf({ ReadOnly, TmpfsOptions }: MountRequest): string {
  const { SizeBytes = 0, Mode = 0, Options = [] } = TmpfsOptions ?? {};
  return [
    ...(ReadOnly ? ['ro'] : []),
    ...(Mode > 0 ? [`mode=${Mode.toString(8)}`] : []),
    ...(SizeBytes > 0 ? [`size=${SizeBytes}`] : []),
    ...Options.map((option) => option.join('=')),
  ].join(',');
}
