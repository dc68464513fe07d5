/** Worker tasks: the files of COPY and ADD are found and hashed, and written into the root of an image. */
import { createHash } from 'node:crypto';
import { closeSync, constants, openSync } from 'node:fs';
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import { toBytePath } from '../../storage/byte-path.js';
import { openResolved } from '../../storage/container-path.js';
import { storageError } from '../../storage/storage-error.js';
import { closeFd } from '../../sys/files/fd.js';
import { hostOwner } from '../../sys/users/id-maps.js';
import { hashSource } from './content-digest.js';
import { parseMode } from './file-mode.js';
import { isArchive, unpackArchive } from './local-archive.js';
import { leftOutBy } from './left-out.js';
import { joinPath } from './paths.js';
import { findSources, hasWildcards, type LeftOut, type SourceFile } from './source-files.js';
import { type Appearance, TargetTree } from './target-tree.js';

/** A tree on this host, and what of it is wanted. */
export interface SourceTree {
  readonly root: string;
  readonly sources: readonly string[];
  /** Patterns of files that are not there for the build. */
  readonly ignore: readonly string[];
  /** Patterns of `--exclude`. */
  readonly exclude: readonly string[];
  /** Whether archives of this tree are unpacked; undefined: as those of the others. */
  readonly unpacks?: boolean;
}

export interface DigestInput {
  readonly trees: readonly SourceTree[];
  readonly ignoresOwners: boolean;
}

export interface SourcesDigest {
  readonly hex: string;
  /** As the classic builder names them. */
  readonly kind: 'file' | 'dir' | 'multi';
  readonly count: number;
}

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY;

export function digestSources({ trees, ignoresOwners }: DigestInput): SourcesDigest {
  const hash = createHash('sha256');
  let count = 0;
  let kind: SourcesDigest['kind'] = 'file';
  withSources(trees, (source, leftOut) => {
    count++;
    if (source.stat.isDirectory()) kind = 'dir';
    hashSource(hash, source, leftOut, { ignoresOwners });
  });
  return { hex: hash.digest('hex'), kind: count > 1 ? 'multi' : kind, count };
}

export interface CopyFilesInput {
  readonly trees: readonly SourceTree[];
  /** The root file system of the image is mounted here. */
  readonly rootfs: string;
  /** Absolute, without `..`. */
  readonly destination: string;
  /** It was written with a slash at its end, or there are several sources. */
  readonly isIntoDirectory: boolean;
  /** The owner in the image; undefined: as in the source. */
  readonly owner: Owner | undefined;
  /** The owners in the trees are those of this host already. */
  readonly isMapped: boolean;
  readonly chmod: string;
  /** Archives are unpacked. */
  readonly unpacks: boolean;
  /** Directories of the sources are kept below the destination. */
  readonly parents: boolean;
  readonly idMaps: IdMaps | undefined;
}

export async function copyFiles(input: CopyFilesInput): Promise<{ readonly copied: number }> {
  const rootFd = openSync(input.rootfs, DIRECTORY);
  const tree = new TargetTree(rootFd, appearanceOf(input));
  let copied = 0;
  try {
    const destination = toBytePath(input.destination);
    if (input.isIntoDirectory) tree.makeDirectories(destination);
    for (const one of input.trees) {
      for (const { source, leftOut } of openTree(one)) {
        try {
          copied++;
          if ((one.unpacks ?? input.unpacks) && source.stat.isFile() && (await isArchive(source.at))) {
            tree.makeDirectories(destination);
            const resolved = openResolved(rootFd, destination);
            closeFd(resolved.fd);
            const { owner, idMaps } = input;
            await unpackArchive(source.at, { rootFd, directory: resolved.path, owner, idMaps });
          } else place(tree, source, destination, input, leftOut);
        } finally {
          source.close();
        }
      }
    }
  } catch (error) {
    throw storageError(error, 'copying files into an image');
  } finally {
    closeSync(rootFd);
  }
  return { copied };
}

function place(
  tree: TargetTree,
  source: SourceFile,
  destination: string,
  { isIntoDirectory, parents }: CopyFilesInput,
  leftOut: LeftOut,
): void {
  if (parents) {
    tree.copy(source, joinPath(destination, source.path.slice(1)), false, leftOut);
    return;
  }
  if (source.stat.isDirectory()) {
    tree.copy(source, destination, true, leftOut);
    return;
  }
  const isInto = isIntoDirectory || tree.isDirectory(destination);
  tree.copy(source, isInto ? joinPath(destination, source.name) : destination, false, leftOut);
}

function appearanceOf({ owner, isMapped, idMaps, chmod }: CopyFilesInput): Appearance {
  const mapped = (one: Owner): Owner => (idMaps ? hostOwner(idMaps, one) : one);
  const given = owner && mapped(owner);
  return {
    owner: (source) => given ?? (isMapped ? source : mapped(source)),
    directoryOwner: given ?? mapped({ uid: 0, gid: 0 }),
    mode: parseMode(chmod),
  };
}

function withSources(trees: readonly SourceTree[], use: (source: SourceFile, leftOut: LeftOut) => void): void {
  for (const tree of trees) {
    for (const { source, leftOut } of openTree(tree)) {
      try {
        use(source, leftOut);
      } finally {
        source.close();
      }
    }
  }
}

function* openTree(tree: SourceTree): Generator<{ readonly source: SourceFile; readonly leftOut: LeftOut }> {
  const rootFd = openSync(tree.root, DIRECTORY);
  const isIgnored = leftOutBy(tree.ignore);
  const isExcluded = leftOutBy(tree.exclude);
  const leftOut: LeftOut = (path, isDirectory) => isIgnored(path, isDirectory) || isExcluded(path, isDirectory);
  try {
    for (const pattern of tree.sources) {
      const found = findSources(rootFd, pattern, hasWildcards(pattern) ? leftOut : isIgnored);
      for (const source of found) yield { source, leftOut };
    }
  } finally {
    closeSync(rootFd);
  }
}
