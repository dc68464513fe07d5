/** Worker tasks of the driver `btrfs`: all that waits for the disk. */
import { randomBytes } from 'node:crypto';
import { chownSync, chmodSync, existsSync, mkdirSync, readlinkSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import type { BigIntStats } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Owner } from '../../../ports/id-maps.js';
import { ensureQuota, limitOf, referencedBytes, setLimit } from '../../../sys/btrfs/quota-groups.js';
import {
  cleanSoon,
  deleteSubvolume,
  isSubvolume,
  makeSnapshot,
  makeSubvolume,
  setReadOnly,
} from '../../../sys/btrfs/subvolumes.js';
import { toBytePath } from '../../byte-path.js';
import { removeTree } from '../../remove-tree.js';
import { layerGone } from '../../storage-error.js';
import { removeTrees } from '../../tasks/remove-trees.js';
import { applyDifference } from '../../trees/apply-difference.js';
import { moveDifference } from '../../trees/move-difference.js';
import { TREE } from '../whole-tree.js';
import { LIMIT, OWN, START, startFor } from './places.js';

/** stat(2) counts in these. */
const BLOCK_BYTES = 512n;

/** Makes an empty subvolume. */
export function makeTree({ at }: { readonly at: string }): void {
  makeSubvolume(at);
}

/**
 * Begins the tree of a layer as that of the layer below. Returns an empty directory in it for the difference, of a name
 * that no layer can know.
 */
export function beginLayer({ parent, tree }: { readonly parent: string; readonly tree: string }): string {
  if (!isSubvolume(parent)) throw layerGone(parent);
  makeSnapshot(parent, tree);
  const difference = join(tree, `.difference-${randomBytes(16).toString('hex')}`);
  mkdirSync(difference, { mode: 0o755 });
  return difference;
}

export interface SealInput {
  /**
   * A directory in the tree, from which its entries are moved; or a subvolume that becomes the lowest layer, or whose
   * entries are copied onto a snapshot of what is below.
   */
  readonly difference: string;
  readonly parent: string | undefined;
  readonly tree: string;
}

/** Makes the read-only tree of a layer. */
export function sealLayer({ difference, parent, tree }: SealInput): void {
  if (dirname(difference) === tree) moveDifference(toBytePath(difference), toBytePath(tree));
  else if (parent === undefined) renameSync(difference, tree);
  else {
    if (!isSubvolume(parent)) throw layerGone(parent);
    makeSnapshot(parent, tree);
    const own = isSubvolume(difference) ? new BlockSum() : undefined;
    applyDifference(toBytePath(difference), toBytePath(tree), (stat) => own?.add(stat));
    noteOwn(own, dirname(tree));
    if (!deleteSubvolume(difference)) removeTree(toBytePath(difference));
  }
  setReadOnly(tree, true);
}

/**
 * Adds up how much a layer has alone, while its entries are apart from those below. The tree does not tell: of blocks
 * that it shares with the difference, it has the age, and they may be older than the snapshot. The files tell it, as
 * they count what is still in memory, too.
 */
class BlockSum {
  readonly #linked = new Set<bigint>();
  #blocks = 0n;

  add({ ino, nlink, blocks }: BigIntStats): void {
    if (nlink > 1n && this.#linked.has(ino)) return;
    this.#blocks += blocks;
    if (nlink > 1n) this.#linked.add(ino);
  }

  get bytes(): bigint {
    return this.#blocks * BLOCK_BYTES;
  }
}

/** Writes down how much a layer has alone. */
function noteOwn(own: BlockSum | undefined, directory: string): void {
  const link = join(directory, OWN);
  rmSync(link, { force: true });
  if (own) symlinkSync(String(own.bytes), link);
}

interface Beginning {
  readonly image: string;
  readonly differences: readonly string[];
  /** The last container was of this image, too. */
  readonly isAgain: boolean;
}

/**
 * Makes the tree of a container as one of its image. What every container of it needs is written once for an image that
 * has several: each of them begins as a snapshot that nothing has to be written to.
 */
function beginTree(directory: string, tree: string, { image, differences, isAgain }: Beginning): void {
  if (!isSubvolume(image)) throw layerGone(image);
  const start = startFor({ image, differences });
  if (start !== undefined && isAgain && !isSubvolume(start))
    makeStart(join(directory, START), start, { image, differences });
  if (start !== undefined && isSubvolume(start)) makeSnapshot(start, tree);
  else fillSnapshot(tree, { image, differences });
}

/** Makes it in the directory of a container that is not one yet: what a crash leaves there is removed. */
function makeStart(aside: string, start: string, from: Pick<Beginning, 'image' | 'differences'>): void {
  fillSnapshot(aside, from);
  try {
    renameSync(aside, start);
  } catch (error) {
    // Another thread was faster.
    if (!isSubvolume(start)) throw error;
    deleteSubvolume(aside);
  }
}

function fillSnapshot(tree: string, { image, differences }: Pick<Beginning, 'image' | 'differences'>): void {
  makeSnapshot(image, tree);
  for (const difference of differences) applyDifference(toBytePath(difference), toBytePath(tree));
}

export interface MakeContainerInput {
  readonly directory: string;
  /** The tree of the image. */
  readonly image: string | undefined;
  /** Differences between the image and the container, the lowest first. */
  readonly differences: readonly string[];
  /** The last container was of this image, too. */
  readonly isAgain: boolean;
  /** Bytes that may be added to what the image has. */
  readonly sizeBytes: number | undefined;
  readonly owner: Owner;
}

/** Makes the writable tree of a container. */
export function makeContainer(input: MakeContainerInput): void {
  const { directory, image, differences, isAgain, sizeBytes, owner } = input;
  const tree = join(directory, TREE);
  if (sizeBytes !== undefined) ensureQuota(directory);
  if (image === undefined) {
    makeSubvolume(tree);
    chmodSync(tree, 0o755);
    chownSync(tree, owner.uid, owner.gid);
    for (const difference of differences) applyDifference(toBytePath(difference), toBytePath(tree));
  } else beginTree(directory, tree, { image, differences, isAgain });
  if (sizeBytes === undefined) return;
  const limitBytes = referencedBytes(tree) + sizeBytes;
  setLimit(tree, limitBytes);
  // A link is part of the metadata of its directory, so a crash cannot leave it empty.
  symlinkSync(String(limitBytes), join(directory, LIMIT));
}

/** Sees to it that the limit of a container is kept: somebody may have turned the quota groups off meanwhile. */
export function renewLimit({ directory }: { readonly directory: string }): void {
  const bytes = Number(readlinkSync(join(directory, LIMIT)));
  const tree = join(directory, TREE);
  ensureQuota(directory);
  if (limitOf(tree) !== bytes) setLimit(tree, bytes);
}

/** Deletes directories of layers and containers, and makes the kernel begin to free their space. */
export function removeDirectories({
  paths,
  names,
}: {
  readonly paths: readonly string[];
  names: readonly string[];
}): void {
  let isAny = false;
  for (const path of paths) for (const name of names) isAny = deleteSubvolume(join(path, name)) || isAny;
  removeTrees({ paths });
  const [parent] = paths.map(dirname).filter((path) => existsSync(path));
  if (isAny && parent !== undefined) cleanSoon(parent);
}

/** Turns the quota groups on. */
export function enableQuota({ path }: { readonly path: string }): void {
  ensureQuota(path);
}
