/**
 * The tar of a layer, made while its files are made: so nobody reads them again. They come in the order of the tar,
 * each when it is complete. A directory comes before what is in it, with the time that it will have; in the end it is
 * looked at whether it has become that, and whether there are other names. So the tar is the one that a walk through
 * the complete files would give, or there is none. Synchronous, for worker threads. Paths are byte strings below the
 * root.
 */
import { readdirSync, rmSync, type BigIntStats } from 'node:fs';
import type { IdMaps } from '../../ports/id-maps.js';
import { listXattrs } from '../../sys/files/xattr.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { statOf } from '../stat-of.js';
import { diffEntry } from './diff.js';
import { commonFields, EntryWriter, type FileFacts } from './entry-writer.js';
import { BLOCK_SIZE } from './header.js';
import { encodeHeader, END_OF_ARCHIVE, padding } from './header-writer.js';
import { type SealedFacts, SealedTar } from './sealed-tar.js';
import { SplitWriter } from './split-writer.js';

const CHUNK_BYTES = 1024 * 1024;
/** A file in a directory with this attribute gets attributes of its own when it is made. */
const INHERITED = 'system.posix_acl_default';

export interface GrowingTarPlace {
  /** The difference of the layer, which is empty. */
  readonly upperDir: string;
  /** A file to be created. */
  readonly tarSplitPath: string;
  readonly idMaps: IdMaps | undefined;
}

export class GrowingTar {
  readonly #place: GrowingTarPlace;
  readonly #root: string;
  readonly #split: SplitWriter;
  readonly #tar: SealedTar;
  readonly #writer: EntryWriter;
  /** The bytes of each directory in the tar. */
  readonly #directories = new Map<string, Buffer>();
  readonly #times = new Map<string, bigint>();
  /** The number of names that have come of each directory. */
  readonly #names = new Map<string, number>([['', 0]]);
  /** The last path, and the directory that it is in. */
  #last = '';
  #lastDirectory = '';
  /** Memory for the header of a file, which nobody keeps. */
  readonly #header = Buffer.alloc(BLOCK_SIZE);
  #isGivenUp = false;

  constructor(place: GrowingTarPlace) {
    const { upperDir, tarSplitPath, idMaps } = place;
    this.#place = place;
    this.#root = toBytePath(upperDir);
    this.#split = new SplitWriter(tarSplitPath);
    this.#tar = new SealedTar(this.#split, idMaps);
    const buffer = Buffer.allocUnsafeSlow(CHUNK_BYTES);
    this.#writer = new EntryWriter(() => buffer, idMaps, this.#tar, true);
    if (isInherited(this.#root)) this.giveUp();
  }

  /** The files are not those of this tar: when they are complete, they have to be walked through. */
  giveUp(): void {
    if (this.#isGivenUp) return;
    this.#isGivenUp = true;
    this.#split.close();
    rmSync(this.#place.tarSplitPath);
  }

  /** Tells which time a directory will have in the end. */
  willHaveTime(path: string, mtimeNs: bigint): void {
    this.#times.set(path, mtimeNs);
  }

  /** Takes a regular file with one name and without attributes. */
  file(path: string, facts: FileFacts, content: Buffer): void {
    const directory = directoryOf(path);
    this.#takeAbove(path, directory);
    if (!this.#isNext(path, directory)) return;
    const tar = this.#tar;
    tar.file(path, facts);
    if (tar.isUnlikeTar) return this.giveUp();
    const sizeBytes = content.length;
    const { mode, uid, gid, mtimeSeconds } = commonFields(facts, this.#place.idMaps);
    tar.take(encodeHeader({ type: '0', name: path, mode, uid, gid, sizeBytes, mtimeSeconds }, this.#header));
    if (sizeBytes === 0) return;
    tar.content(path, sizeBytes);
    tar.take(content);
    tar.take(padding(sizeBytes));
  }

  /** Takes anything with one name. A directory has its owner, its mode and its attributes, and nothing in it. */
  entry(path: string): void {
    this.#takeAbove(path, directoryOf(path));
    this.#take(path);
  }

  /** Returns what the layer is; undefined when it has to be walked through. Nobody changes the files any more. */
  end(): SealedFacts | undefined {
    if (!this.#isGivenUp && !this.#isAsTold()) this.giveUp();
    if (this.#isGivenUp) return undefined;
    this.#tar.take(END_OF_ARCHIVE);
    return this.#tar.end();
  }

  /** Idempotent. */
  close(): void {
    this.#split.close();
  }

  /** Takes the directories above that have not come: mostly none, as the file before was in the same one. */
  #takeAbove(path: string, directory: string): void {
    if (directory === this.#lastDirectory) return;
    for (let slash = path.indexOf('/'); slash > 0; slash = path.indexOf('/', slash + 1)) {
      const above = path.slice(0, slash);
      if (!this.#directories.has(above)) this.#take(above);
    }
  }

  #take(path: string): void {
    if (!this.#isNext(path, directoryOf(path))) return;
    const at = `${this.#root}/${path}`;
    const stat = statOf(at);
    if (stat === undefined || stat.isSocket()) return this.giveUp();
    if (stat.isDirectory()) this.#takeDirectory(path, at, stat);
    else
      for (const chunk of diffEntry(this.#writer, { path, at, stat }, this.#place.idMaps, this.#tar))
        this.#tar.take(chunk);
    if (this.#tar.isUnlikeTar) this.giveUp();
  }

  #takeDirectory(path: string, at: string, stat: BigIntStats): void {
    if (isInherited(at)) return this.giveUp();
    const mtimeNs = this.#times.get(path);
    const bytes = this.#bytesOf(path, at, mtimeNs === undefined ? stat : withTime(stat, mtimeNs));
    this.#directories.set(path, bytes);
    this.#names.set(path, 0);
    this.#tar.take(bytes);
  }

  #bytesOf(path: string, at: string, stat: BigIntStats): Buffer {
    return Buffer.concat([...diffEntry(this.#writer, { path, at, stat }, this.#place.idMaps, this.#tar)]);
  }

  /** Notes a name. Returns false when nothing more is wanted. */
  #isNext(path: string, directory: string): boolean {
    if (this.#isGivenUp) return false;
    const names = this.#names.get(directory);
    const last = this.#last;
    const isBehind = directory === this.#lastDirectory ? path > last : sortable(path) > sortable(last);
    if (names === undefined || !isBehind) {
      this.giveUp();
      return false;
    }
    this.#names.set(directory, names + 1);
    this.#last = path;
    this.#lastDirectory = directory;
    return true;
  }

  #isAsTold(): boolean {
    for (const [path, names] of this.#names) {
      const at = path === '' ? this.#root : `${this.#root}/${path}`;
      if (readdirSync(fsPath(at)).length !== names) return false;
      const stat = path === '' ? undefined : statOf(at);
      if (stat && this.#directories.get(path)?.equals(this.#bytesOf(path, at, stat)) !== true) return false;
    }
    return !this.#tar.isUnlikeTar;
  }
}

function directoryOf(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf('/'), 0));
}

/** Returns a path in a form that sorts as the walk goes. */
function sortable(path: string): string {
  return path.replaceAll('/', '\0');
}

function isInherited(at: string): boolean {
  return listXattrs(fsPath(at)).includes(INHERITED);
}

function withTime(stat: BigIntStats, mtimeNs: bigint): BigIntStats {
  return Object.create(stat, { mtimeNs: { value: mtimeNs } }) as BigIntStats;
}
