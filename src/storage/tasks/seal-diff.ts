/**
 * Worker task: makes of the difference of a writable layer, in its place, that of a read-only layer. The result is what
 * unpacking its tar would give but for the nanoseconds of times, and no file is written.
 */
import { chmodSync, lchownSync, rmSync, unlinkSync } from 'node:fs';
import type { IdMaps } from '../../ports/id-maps.js';
import type { LayerContent } from '../../ports/storage.js';
import { listXattrs, removeXattr } from '../../sys/files/xattr.js';
import { rootOwner } from '../../sys/users/id-maps.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { copyTimes, isContentXattr } from '../copy-attributes.js';
import { statOf } from '../stat-of.js';
import { storageError } from '../storage-error.js';
import { diffTar } from '../tar/diff.js';
import { type SealedFacts, SealedTar } from '../tar/sealed-tar.js';
import { SplitWriter } from '../tar/split-writer.js';
import { settleLayer } from './settle-layer.js';

export interface SealDiffInput {
  /** Nobody has it mounted, and nobody changes it. */
  readonly upperDir: string;
  /** A file to be created. */
  readonly tarSplitPath: string;
  readonly idMaps: IdMaps | undefined;
}

/**
 * Returns undefined, with no tar-split file, when the files are not those of their tar: the tar must be unpacked then.
 */
export function sealDiff({ upperDir, tarSplitPath, idMaps }: SealDiffInput): LayerContent | undefined {
  const split = new SplitWriter(tarSplitPath);
  try {
    const tar = new SealedTar(split, idMaps);
    for (const chunk of diffTar(upperDir, idMaps, tar)) {
      if (tar.isUnlikeTar) {
        rmSync(tarSplitPath);
        return undefined;
      }
      tar.take(chunk);
    }
    const facts = tar.end();
    const root = toBytePath(upperDir);
    for (const path of tar.sockets) removeQuietly(`${root}/${path}`);
    return sealed(root, facts, idMaps);
  } catch (error) {
    throw storageError(error, 'making a layer of a container');
  } finally {
    split.close();
  }
}

/**
 * Does the same, and completes the layer with what only those below it know, so that nobody starts another task for it.
 * @param lowerDirs directories of the layers below, the nearest first.
 */
export function sealSettled({
  lowerDirs,
  ...input
}: SealDiffInput & { readonly lowerDirs: readonly string[] }): LayerContent | undefined {
  const content = sealDiff(input);
  if (content === undefined) return undefined;
  settleLayer({ ...content, diffDir: input.upperDir, lowerDirs });
  return { ...content, implicitDirs: [], whiteouts: [] };
}

/** Completes the difference whose tar is known. */
export function sealed(root: string, facts: SealedFacts, idMaps: IdMaps | undefined): LayerContent {
  forgetRoot(root, idMaps);
  // The tar has no entry for the root.
  return { ...facts, implicitDirs: [''], danglingLinks: [] };
}

/** The layers below give the root its attributes; without any it has these. */
function forgetRoot(root: string, idMaps: IdMaps | undefined): void {
  const { uid, gid } = rootOwner(idMaps);
  lchownSync(fsPath(root), uid, gid);
  chmodSync(fsPath(root), 0o755);
  for (const name of listXattrs(fsPath(root)).filter((each) => isContentXattr(each) || each.startsWith('user.')))
    removeXattr(fsPath(root), name);
}

function removeQuietly(at: string): void {
  const directory = at.slice(0, at.lastIndexOf('/'));
  const before = statOf(directory);
  unlinkSync(fsPath(at));
  if (before) copyTimes(before, directory);
}
