/** Worker task: finds what a container changed in its image's files. */
import { internal } from '../../errors/engine-error.js';
import type { Change } from '../../ports/storage.js';
import { toBytePath, toText } from '../byte-path.js';
import { isOpaque, isWhiteout } from '../layers/marks.js';
import { MergedView, type MergedEntry } from '../layers/merged-view.js';
import { packChanges, type PackedChanges } from '../packed-changes.js';
import { walkTree, type WalkedEntry } from '../walk-tree.js';

export interface ChangesInput {
  readonly diffDir: string;
  /** Difference directories of the layers below, the nearest first. */
  readonly lowerDirs: readonly string[];
}

const MODIFIED = 0;
const ADDED = 1;
const DELETED = 2;

/** Returns the changes in the order of their paths. @throws EngineError for more than anybody could read. */
export function changes(input: ChangesInput): PackedChanges {
  const sorted = changesOf(input).sort((a, b) => (a.path < b.path ? -1 : 1));
  const packed = packChanges(sorted);
  if (packed === undefined) throw internal('the container has changed too many files', { code: 'TOO_MANY_CHANGES' });
  return packed;
}

/**
 * Returns the changes in the order of a walk, as the Docker engine reports them. A directory counts as modified only if
 * something was added or deleted in it. A directory that was deleted and made again counts as deleted, its contents as
 * added.
 */
function changesOf({ diffDir, lowerDirs }: ChangesInput): Change[] {
  const view = new MergedView(lowerDirs.map(toBytePath));
  const found: Change[] = [];
  const reported = new Set<string>(['']);
  const hidden: string[] = [];
  for (const entry of walkTree(toBytePath(diffDir))) {
    const { path } = entry;
    while (hidden.length > 0 && !path.startsWith(hidden.at(-1) ?? '')) hidden.pop();
    const below = hidden.length > 0 ? undefined : view.find(path);
    const isReplaced = entry.stat.isDirectory() && isOpaque(entry.at);
    if (isReplaced) hidden.push(`${path}/`);
    const kind = kindOf(entry, below, isReplaced);
    if (kind === undefined) continue;
    const parent = path.slice(0, Math.max(path.lastIndexOf('/'), 0));
    if (kind !== MODIFIED && !reported.has(parent)) {
      reported.add(parent);
      found.push({ path: `/${toText(parent)}`, kind: MODIFIED });
    }
    if (entry.stat.isDirectory()) reported.add(path);
    found.push({ path: `/${toText(path)}`, kind });
  }
  return found;
}

function kindOf(
  { stat }: WalkedEntry,
  below: MergedEntry | undefined,
  isReplaced: boolean,
): Change['kind'] | undefined {
  // A whiteout over nothing is what remains of a file that the container made and deleted again.
  if (isWhiteout(stat)) return below ? DELETED : undefined;
  if (!below) return ADDED;
  if (isReplaced && below.parts) return DELETED;
  const isSame =
    stat.isDirectory() &&
    below.parts &&
    stat.mode === below.stat.mode &&
    stat.size === below.stat.size &&
    stat.mtimeNs === below.stat.mtimeNs;
  return isSame ? undefined : MODIFIED;
}
