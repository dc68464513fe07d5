/** Worker tasks: the files of COPY and ADD are found and hashed, and written into the root of an image. */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, statSync } from 'node:fs';
import type { MessagePort } from 'node:worker_threads';
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import type { GrowingLayer, LayerContent } from '../../ports/storage.js';
import { fsPath, toBytePath } from '../../storage/byte-path.js';
import { findPath, type FoundPath } from '../../storage/container-path.js';
import { storageError } from '../../storage/storage-error.js';
import { sealed } from '../../storage/tasks/seal-diff.js';
import { GrowingTar } from '../../storage/tar/growing-tar.js';
import { closeFd } from '../../sys/files/fd.js';
import { openInRoot } from '../../sys/files/open-in-root.js';
import { hostOwner } from '../../sys/users/id-maps.js';
import { hashDirectory, hashSource } from './content-digest.js';
import { directoryModeOf, parseMode } from './file-mode.js';
import { FileLine } from './file-line.js';
import { isArchive, unpackArchive } from './local-archive.js';
import { leftOutBy } from './left-out.js';
import { KeptDigests } from './kept-digests.js';
import { joinPath } from './paths.js';
import {
  type DirectoryBetween,
  directoriesBetween,
  findSources,
  hasWildcards,
  type LeftOut,
  type SourceFile,
} from './source-files.js';
import { type Appearance, type CopyRules, type TargetLayer, TargetTree } from './target-tree.js';

/** A tree on this host, and what of it is wanted. */
export interface SourceTree {
  readonly root: string;
  readonly sources: readonly string[];
  /** Patterns of files that are not there for the build. */
  readonly ignore: readonly string[];
  /** Patterns of `--exclude`. */
  readonly exclude: readonly string[];
  /** Where digests of its files are remembered, when it stays between builds; see kept-digests.ts. */
  readonly digests?: string | undefined;
  /** Whether archives of this tree are unpacked; undefined: as those of the others. */
  readonly unpacks?: boolean;
  /** The sources are those of `--parents`. */
  readonly parents?: boolean;
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
  for (const tree of trees) {
    const known = tree.digests === undefined ? undefined : new KeptDigests(tree.digests, deviceOf(tree.root));
    const options = { ignoresOwners, known };
    withSources(tree, ({ source, leftOut, between }) => {
      count++;
      if (source.stat.isDirectory()) kind = 'dir';
      // A file in another place is another result, and so is one in a directory that looks otherwise.
      if (tree.parents) hash.update(`${source.below}\0`);
      between((directory) => hashDirectory(hash, directory, options));
      hashSource(hash, source, leftOut, options);
    });
    known?.save();
  }
  return { hex: hash.digest('hex'), kind: count > 1 ? 'multi' : kind, count };
}

export interface CopyFilesInput {
  readonly trees: readonly SourceTree[];
  /** The root file system of the image is mounted here. */
  readonly rootfs: string;
  /** Absolute, without `..`. */
  readonly destination: string;
  /** It was written with a slash at its end. Without sources it is made. */
  readonly isIntoDirectory: boolean;
  /** The owner in the image; undefined: as in the source. */
  readonly owner: Owner | undefined;
  /** The rules are those of the classic builder, for which all files but those of archives belong to root. */
  readonly classic?: { readonly belongsToRoot: boolean };
  /** The owners in the trees are those of this host already. */
  readonly isMapped: boolean;
  readonly chmod: string;
  /** Archives are unpacked. */
  readonly unpacks: boolean;
  /** Directories of the sources are kept below the destination. */
  readonly parents: boolean;
  readonly idMaps: IdMaps | undefined;
  /** The layer that the files make, when nothing else is in it. */
  readonly layer?: GrowingLayer | undefined;
  /** Asks for a thread that helps, with the memory of a line of files (file-line.ts). */
  readonly port?: Pick<MessagePort, 'postMessage'>;
}

/** Resolves with what the layer has become; undefined when that has to be found out. */
export async function copyFiles(input: CopyFilesInput): Promise<LayerContent | undefined> {
  const { port } = input;
  const line = port && new FileLine((memory) => port.postMessage(memory, []));
  const layer = input.layer && growsInOrder(input) ? openLayer(input.layer, line) : undefined;
  try {
    await copyAll(input, layer);
    const facts = layer?.tar.end();
    return facts && input.layer && sealed(toBytePath(input.layer.upperDir), facts, input.layer.idMaps);
  } catch (error) {
    throw storageError(error, 'copying files into an image');
  } finally {
    line?.end();
    layer?.tar.close();
    if (layer) closeSync(layer.fd);
  }
}

/**
 * Tells whether the files come in the order of a tar, and directories get no other time afterwards than they are known
 * to get: those of several sources may be anywhere.
 */
function growsInOrder({ trees, classic, unpacks }: CopyFilesInput): boolean {
  const [tree] = trees;
  const [source] = tree?.sources ?? [];
  if (tree === undefined || source === undefined || classic !== undefined || (tree.unpacks ?? unpacks)) return false;
  return trees.length === 1 && tree.sources.length === 1 && !hasWildcards(source);
}

function openLayer(layer: GrowingLayer, line: FileLine | undefined): TargetLayer {
  const fd = openSync(layer.upperDir, DIRECTORY);
  try {
    const root = toBytePath(layer.upperDir);
    return { fd, root, device: fstatSync(fd, { bigint: true }).dev, tar: new GrowingTar(layer), line };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

async function copyAll(input: CopyFilesInput, layer: TargetLayer | undefined): Promise<void> {
  const rootFd = openSync(input.rootfs, DIRECTORY);
  const tree = new TargetTree(rootFd, appearanceOf(input), rulesOf(input), layer);
  let copied = 0;
  try {
    const destination = tree.resolve(toBytePath(input.destination));
    if (input.trees.length === 0) tree.makeDirectories(destination);
    for (const one of input.trees) {
      for (const found of openTree(one)) {
        const { source } = found;
        try {
          // Modes that are wanted apply neither to an archive nor to the directory that it is unpacked into.
          const isPacked = (one.unpacks ?? input.unpacks) && source.stat.isFile() && (await isArchive(source.at));
          if (copied++ === 0 && input.isIntoDirectory && !isPacked) tree.makeDirectories(destination);
          if (isPacked) await unpack(rootFd, source, destination, input);
          else place(tree, found, destination, input);
        } finally {
          source.close();
        }
      }
    }
  } finally {
    closeSync(rootFd);
  }
}

/** Unpacks an archive into a directory, which is the root for links in it. */
async function unpack(rootFd: number, source: SourceFile, destination: string, input: CopyFilesInput): Promise<void> {
  const { idMaps, classic } = input;
  const owner = classic ? undefined : input.owner;
  const tree = new TargetTree(rootFd, appearanceOf({ ...input, owner, chmod: '' }), rulesOf(input));
  tree.makeDirectories(destination);
  const directoryFd = openInRoot(rootFd, fsPath(destination), DIRECTORY);
  try {
    await unpackArchive(source.at, { rootFd: directoryFd, directory: '/', owner, idMaps });
  } finally {
    closeFd(directoryFd);
  }
}

function place(
  tree: TargetTree,
  { source, leftOut, between }: OpenSource,
  destination: string,
  { isIntoDirectory, parents, classic }: CopyFilesInput,
): void {
  if (parents) {
    const to = (below: string): string => (below === '' ? destination : joinPath(destination, below));
    between((directory, below) => tree.copyDirectoryAlone(directory, to(below)));
    tree.copy(source, to(source.below), source.below === '', leftOut);
    return;
  }
  if (source.stat.isDirectory()) {
    tree.copy(source, destination, true, leftOut);
    return;
  }
  const isInto = isIntoDirectory || tree.isDirectory(destination);
  // The classic builder takes the name of the file to which a link leads.
  const name = classic && !source.isMatch ? source.path.slice(source.path.lastIndexOf('/') + 1) : source.name;
  tree.copy(source, isInto ? joinPath(destination, name) : destination, false, leftOut);
}

const ROOT: Owner = { uid: 0, gid: 0 };

function appearanceOf({ owner, classic, isMapped, idMaps, chmod }: CopyFilesInput): Appearance {
  const mapped = (one: Owner): Owner => (idMaps ? hostOwner(idMaps, one) : one);
  const wanted = owner ?? (classic?.belongsToRoot ? ROOT : undefined);
  const given = wanted && mapped(wanted);
  return {
    owner: (source) => given ?? (isMapped ? source : mapped(source)),
    directoryOwner: given ?? mapped(ROOT),
    directoryMode: directoryModeOf(chmod),
    mode: parseMode(chmod),
  };
}

function rulesOf({ classic, owner }: CopyFilesInput): CopyRules {
  const isClassic = classic !== undefined;
  const dropsSetuid = classic?.belongsToRoot === true || (isClassic && owner !== undefined);
  return { replaces: isClassic, keepsTopTime: !isClassic, keepsAllNames: isClassic, dropsSetuid };
}

function deviceOf(directory: string): bigint {
  return statSync(directory, { bigint: true }).dev;
}

interface OpenSource {
  readonly source: SourceFile;
  readonly leftOut: LeftOut;
  /** Opens the directories on the way to it that `--parents` keeps, one after the other. */
  readonly between: (use: (directory: FoundPath, below: string) => void) => void;
}

function withSources(tree: SourceTree, use: (found: OpenSource) => void): void {
  for (const found of openTree(tree)) {
    try {
      use(found);
    } finally {
      found.source.close();
    }
  }
}

function* openTree(tree: SourceTree): Generator<OpenSource> {
  const rootFd = openSync(tree.root, DIRECTORY);
  const isIgnored = leftOutBy(tree.ignore);
  const isExcluded = leftOutBy(tree.exclude);
  try {
    for (const pattern of tree.sources) {
      for (const source of findSources(rootFd, pattern, isIgnored, tree.parents)) {
        // Patterns of `--exclude` begin in the directory that is copied; a file that is named itself is wanted.
        const start = source.path === '/' ? 0 : source.path.length;
        const isOut = (path: string, isDirectory: boolean): boolean =>
          isIgnored(path, isDirectory) || isExcluded(path.slice(start), isDirectory);
        const keepsTime = (path: string): boolean => !isExcluded(path.slice(start), true);
        const between: OpenSource['between'] = (use) => {
          if (tree.parents) for (const one of directoriesBetween(source)) withPath(rootFd, one, use);
        };
        yield { source, leftOut: Object.assign(isOut, { keepsTime }), between };
      }
    }
  } finally {
    closeSync(rootFd);
  }
}

function withPath(
  rootFd: number,
  { from, below }: DirectoryBetween,
  use: (found: FoundPath, below: string) => void,
): void {
  const found = findPath(rootFd, from);
  try {
    use(found, below);
  } finally {
    found.close();
  }
}
