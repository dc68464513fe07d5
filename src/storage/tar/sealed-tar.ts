/**
 * The tar of a layer whose files stay as they are: its digest and its tar-split file are made of its bytes, and it is
 * seen whether unpacking it would give the same files. Synchronous, for worker threads.
 */
import { createHash } from 'node:crypto';
import type { IdMaps } from '../../ports/id-maps.js';
import type { Digest } from '../../ports/storage.js';
import { containerOwner, hostOwner, rootOwner } from '../../sys/users/id-maps.js';
import { withCapabilityRoot, withoutCapabilityRoot } from '../file-capabilities.js';
import { isWhiteout } from '../layers/marks.js';
import type { WalkedEntry } from '../walk-tree.js';
import type { DiffWatcher } from './diff.js';
import type { FileOwner } from './entry-writer.js';
import type { SplitWriter } from './split-writer.js';

/**
 * Matches attributes that a layer may keep though its tar has none of them: what overlayfs notes about an upper
 * directory means nothing in a lower one, and the security module of this host labels every file.
 */
const HARMLESS = /^(?:trusted\.overlay\.(?:opaque|origin|impure)|security\..*)$/;
const WHITEOUT = '.wh.';

export interface SealedFacts {
  readonly diffId: Digest;
  readonly sizeBytes: number;
  readonly whiteouts: readonly string[];
}

export class SealedTar implements DiffWatcher {
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

  /** The files are not those that unpacking the tar would give. */
  get isUnlikeTar(): boolean {
    return this.#isUnlikeTar;
  }

  /** Names that the tar has not. */
  get sockets(): readonly string[] {
    return this.#sockets;
  }

  /** Takes the next bytes of the tar. */
  take(chunk: Buffer): void {
    this.#hash.update(chunk);
    this.#tarBytes += chunk.length;
    if (this.#contentBytes > 0) this.#contentBytes -= chunk.length;
    else this.split.raw(chunk, 0, chunk.length);
  }

  /** Completes the tar-split file. */
  end(): SealedFacts {
    this.split.end(this.#tarBytes);
    return {
      diffId: `sha256:${this.#hash.digest('hex')}`,
      sizeBytes: this.#sizeBytes,
      whiteouts: this.#whiteouts,
    };
  }

  entry({ path, stat }: WalkedEntry): void {
    this.#name(path);
    if (isWhiteout(stat)) this.#whiteouts.push(path);
    else if (stat.isSocket()) this.#sockets.push(path);
    else this.#owner(stat);
  }

  /** Does the same for a regular file. */
  file(path: string, owner: FileOwner): void {
    this.#name(path);
    this.#owner(owner);
  }

  #name(path: string): void {
    if (path.startsWith(WHITEOUT, path.lastIndexOf('/') + 1)) this.#isUnlikeTar = true;
  }

  #owner(owner: FileOwner): void {
    if (this.idMaps && !isMapped(this.idMaps, owner)) this.#isUnlikeTar = true;
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
}

/** An owner whom containers do not know would become another one in a tar. */
function isMapped(idMaps: IdMaps, stat: FileOwner): boolean {
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
