/** Shows the merged view of a stack of differences, without mounting it. Synchronous, for worker threads. */
import { readlinkSync, type BigIntStats } from 'node:fs';
import { fsPath } from '../byte-path.js';
import { statOf } from '../stat-of.js';
import { isOpaque, isWhiteout } from './marks.js';

/** A directory has its parts in all layers that contribute, the topmost first; anything else is in one layer. */
export interface MergedEntry {
  /** Byte string: the place of the topmost part on the disk. */
  readonly at: string;
  readonly stat: BigIntStats;
  /** Parts of a directory; undefined for anything else. */
  readonly parts: readonly string[] | undefined;
}

/** At most so many links are followed while a path is resolved, as in the kernel. */
const MAX_LINKS = 40;

/** Returns the entry `name` of a directory with these parts. */
export function mergedChild(parts: readonly string[], name: string): MergedEntry | undefined {
  let top: { readonly at: string; readonly stat: BigIntStats } | undefined;
  const found: string[] = [];
  for (const part of parts) {
    const at = `${part}/${name}`;
    const stat = statOf(at);
    if (!stat) continue;
    if (!stat.isDirectory()) {
      if (!top && !isWhiteout(stat)) return { at, stat, parts: undefined };
      break;
    }
    top ??= { at, stat };
    found.push(at);
    if (isOpaque(at)) break;
  }
  return top && { ...top, parts: found };
}

/** Looks up paths without following links. It remembers directories, so that each costs only once. */
export class MergedView {
  readonly #directories = new Map<string, readonly string[] | undefined>();

  /** `roots` are byte strings, the topmost layer first. */
  constructor(readonly roots: readonly string[]) {
    this.#directories.set('', roots);
  }

  find(path: string): MergedEntry | undefined {
    const slash = path.lastIndexOf('/');
    const parts = this.#parts(path.slice(0, Math.max(slash, 0)));
    return parts && mergedChild(parts, path.slice(slash + 1));
  }

  #parts(directory: string): readonly string[] | undefined {
    if (this.#directories.has(directory)) return this.#directories.get(directory);
    const parts = this.find(directory)?.parts;
    this.#directories.set(directory, parts);
    return parts;
  }
}

/**
 * Looks up a path as a process with this root would; a link in the last component is followed only when wanted. Returns
 * the path without links, and the entry; undefined also for the root itself.
 */
export function resolveMerged(
  roots: readonly string[],
  path: string,
  followLast = false,
): { readonly path: string; readonly entry: MergedEntry } | undefined {
  const rest = path.split('/').reverse();
  let trail: { readonly name: string; readonly parts: readonly string[] }[] = [];
  let links = 0;
  for (let name = rest.pop(); name !== undefined; name = rest.pop()) {
    if (name === '' || name === '.') continue;
    if (name === '..') {
      trail.pop();
      continue;
    }
    const entry = mergedChild(trail.at(-1)?.parts ?? roots, name);
    if (!entry) return undefined;
    const isLast = !rest.some((part) => part !== '' && part !== '.');
    if (isLast && !(followLast && entry.stat.isSymbolicLink()))
      return { path: [...trail.map((step) => step.name), name].join('/'), entry };
    if (entry.parts) {
      trail.push({ name, parts: entry.parts });
      continue;
    }
    if (!entry.stat.isSymbolicLink() || ++links > MAX_LINKS) return undefined;
    const target = readlinkSync(fsPath(entry.at), 'latin1');
    if (target.startsWith('/')) trail = [];
    rest.push(...target.split('/').reverse());
  }
  return undefined;
}
