/**
 * Worker task: makes of the difference of a writable layer, in its place, that of a read-only layer. The result is what
 * unpacking its tar would give but for the nanoseconds of times, and no file is written.
 */
import { createHash } from 'node:crypto';
import { chmodSync, lchownSync, rmSync, unlinkSync } from 'node:fs';
import type { IdMaps } from '../../ports/id-maps.js';
import { removeXattr } from '../../sys/files/xattr.js';
import { containerOwner, hostOwner, rootOwner } from '../../sys/users/id-maps.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { contentXattrs, copyTimes } from '../copy-attributes.js';
import { withCapabilityRoot, withoutCapabilityRoot } from '../file-capabilities.js';
import { isWhiteout } from '../layers/marks.js';
import { statOf } from '../stat-of.js';
import { storageError } from '../storage-error.js';
import { type DiffWatcher, diffTar } from '../tar/diff.js';
import { SplitWriter } from '../tar/split-writer.js';
import type { WalkedEntry } from '../walk-tree.js';
import type { UnpackedTar } from './unpack-tar.js';

export interface SealDiffInput {
  /** Nobody has it mounted, and nobody changes it. */
  readonly upperDir: string;
  /** A file to be created. */
  readonly tarSplitPath: string;
  readonly idMaps: IdMaps | undefined;
}

/**
 * Matches attributes that a layer may keep though its tar has none of them: what overlayfs notes about an upper
 * directory means nothing in a lower one, and the security module of this host labels every file.
 */
const HARMLESS = /^(?:trusted\.overlay\.(?:opaque|origin|impure)|security\..*)$/;
const WHITEOUT = '.wh.';

/**
 * Returns undefined, with no tar-split file, when the files are not those of their tar: the tar must be unpacked then.
 */
export function sealDiff({ upperDir, tarSplitPath, idMaps }: SealDiffInput): UnpackedTar | undefined {
  const split = new SplitWriter(tarSplitPath);
  try {
    const seal = new Seal(split, idMaps);
    const sealed = seal.run(upperDir);
    if (sealed === undefined) rmSync(tarSplitPath);
    return sealed;
  } catch (error) {
    throw storageError(error, 'making a layer of a container');
  } finally {
    split.close();
  }
}

class Seal implements DiffWatcher {
  readonly isStill = true;
  readonly #hash = createHash('sha256');
  readonly #whiteouts: string[] = [];
  readonly #sockets: string[] = [];
  #tarBytes = 0;
  #sizeBytes = 0;
  /** Bytes of the file under way that are to come. */
  #contentBytes = 0;
  #isUnlikeTar = false;

  constructor(
    private readonly split: SplitWriter,
    private readonly idMaps: IdMaps | undefined,
  ) {}

  run(upperDir: string): UnpackedTar | undefined {
    for (const chunk of diffTar(upperDir, this.idMaps, this)) {
      if (this.#isUnlikeTar) return undefined;
      this.#hash.update(chunk);
      this.#tarBytes += chunk.length;
      if (this.#contentBytes > 0) this.#contentBytes -= chunk.length;
      else this.split.raw(chunk, 0, chunk.length);
    }
    this.split.end(this.#tarBytes);
    const root = toBytePath(upperDir);
    for (const path of this.#sockets) removeQuietly(`${root}/${path}`);
    this.#forgetRoot(root);
    return {
      diffId: `sha256:${this.#hash.digest('hex')}`,
      sizeBytes: this.#sizeBytes,
      // The tar has no entry for the root.
      implicitDirs: [''],
      danglingLinks: [],
      whiteouts: this.#whiteouts,
    };
  }

  entry({ path, stat }: WalkedEntry): void {
    const base = path.slice(path.lastIndexOf('/') + 1);
    if (base.startsWith(WHITEOUT)) this.#isUnlikeTar = true;
    if (isWhiteout(stat)) this.#whiteouts.push(path);
    else if (stat.isSocket()) this.#sockets.push(path);
    else if (this.idMaps && !isMapped(this.idMaps, stat)) this.#isUnlikeTar = true;
  }

  content(path: string, sizeBytes: number): void {
    this.split.file(path, sizeBytes);
    this.#sizeBytes += sizeBytes;
    this.#contentBytes = sizeBytes;
  }

  attribute(name: string, value: Buffer | undefined): void {
    const isSame = value === undefined ? HARMLESS.test(name) : !this.idMaps || isRooted(this.idMaps, name, value);
    if (!isSame) this.#isUnlikeTar = true;
  }

  /** The layers below give the root its attributes; without any it has these. */
  #forgetRoot(root: string): void {
    const { uid, gid } = rootOwner(this.idMaps);
    lchownSync(fsPath(root), uid, gid);
    chmodSync(fsPath(root), 0o755);
    for (const name of contentXattrs(root)) removeXattr(fsPath(root), name);
  }
}

function removeQuietly(at: string): void {
  const directory = at.slice(0, at.lastIndexOf('/'));
  const before = statOf(directory);
  unlinkSync(fsPath(at));
  if (before) copyTimes(before, directory);
}

/** An owner whom containers do not know would become another one in a tar. */
function isMapped(idMaps: IdMaps, stat: WalkedEntry['stat']): boolean {
  const owner = { uid: Number(stat.uid), gid: Number(stat.gid) };
  try {
    const { uid, gid } = hostOwner(idMaps, containerOwner(idMaps, owner));
    return uid === owner.uid && gid === owner.gid;
  } catch {
    return false;
  }
}

/** Capabilities of programs must be those that the root of containers may give. */
function isRooted(idMaps: IdMaps, name: string, value: Buffer): boolean {
  const unpacked = withCapabilityRoot(new Map([[name, withoutCapabilityRoot(name, value)]]), rootOwner(idMaps).uid);
  return unpacked?.get(name)?.equals(value) === true;
}
