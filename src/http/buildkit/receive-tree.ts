/**
 * Receives a directory from a client (FileSync.DiffCopy) into one that may have an older state of it: only files whose
 * description has changed travel. What the client sends is not trusted: it can neither leave the directory nor make
 * this wait for ever nor hold more than a bounded number of descriptions and bytes in memory.
 */
import { chmodSync, chownSync, lchownSync, lstatSync, type BigIntStats } from 'node:fs';
import { link, mkdir, readdir, readlink, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, isEngineError } from '../../errors/engine-error.js';
import { MAX_RECORDS, RECORD_BYTES } from '../../build/files/kept-digests.js';
import type { WriteFiles } from '../../build/files/write-files.js';
import type { CountBytes } from '../../ports/build.js';
import { makeFifo, setTimes } from '../../sys/files/inode.js';
import { isTurnOver, turn } from '../../text/turns.js';
import { BatchMemory } from './batch-memory.js';
import { kindOf, PathOrder, permissionsOf, splitTime } from './file-stat.js';
import { FileWriter, JOINED_BYTES } from './file-writer.js';
import type { MessageCall } from './grpc-client.js';
import { encode } from './grpc-messages.js';
import { readPiece, requestPacket } from './packets.js';
import { readPacket } from './read-packet.js';
import { Packet_Type, PacketSchema, type Packet, type Stat } from './proto/gen/session_pb.js';

/** A context with more files is refused, because a description of each file is kept. */
const MAX_FILES = 2_000_000;
const MAX_DESCRIPTION_BYTES = 512 * 1024 * 1024;
/** A description takes about this much memory besides its texts. */
const DESCRIPTION_BYTES = 200;
/** So many files are on their way at once. */
const MAX_REQUESTS = 64;
/** So many files, which are small as a rule, are written at once, and so many bytes of them are in memory. */
const MAX_ENDING = 32;
const MAX_ENDING_BYTES = 4 * 1024 * 1024;
/** So many small files, or bytes of them, are worth a message to another thread. */
const BATCH_FILES = 128;
const BATCH_BYTES = 1024 * 1024;
/** Digests of fewer files are not kept at once, because to read these files takes no longer. */
const MIN_NOTED_BYTES = 256 * RECORD_BYTES;

/** A tree on its way. */
export interface ReceiveOrder {
  readonly root: string;
  readonly call: MessageCall;
  readonly progress: ReceiveProgress;
  /** Writes small files in another thread. */
  readonly writeFiles: WriteFiles;
  /** Keeps digests of small files that have come, in the form of kept-digests.ts. Absent: they are not kept. */
  readonly noteDigests?: (records: readonly Uint8Array[]) => Promise<void>;
}

export interface ReceiveProgress {
  /** Hears of all messages of the client, also of those that only describe files. */
  readonly bytes: CountBytes;
}

interface Wanted {
  readonly id: number;
  readonly stat: Stat;
}

/**
 * Resolves with the bytes of the regular files that are in the tree now; one with several names counts once.
 * @throws EngineError for what the client does wrong, for its own error, and for a disk that is full.
 */
export async function receiveTree(order: ReceiveOrder): Promise<number> {
  const { call } = order;
  const receiver = new TreeReceiver(order);
  try {
    return await receiver.run();
  } catch (error) {
    call.cancel(isEngineError(error) ? error : undefined);
    throw error;
  } finally {
    await receiver.close();
  }
}

class TreeReceiver {
  readonly #root: string;
  readonly #call: MessageCall;
  readonly #progress: ReceiveProgress;
  readonly #writeFiles: WriteFiles;
  readonly #order = new PathOrder();
  /** Names that an older state left in a directory and that have not come yet. */
  readonly #older = new Map<string, Set<string>>();
  readonly #directories: Stat[] = [];
  readonly #links: Stat[] = [];
  /** Regular files, which alone may be the target of a hard link. */
  readonly #files = new Set<string>();
  readonly #wanted: Wanted[] = [];
  #nextWanted = 0;
  readonly #arriving = new Map<number, FileWriter>();
  /** Files whose last piece has come. They are written beside each other: the disk takes longer than the client. */
  readonly #ending = new Set<Promise<void>>();
  #endingBytes = 0;
  /** Complete files that wait for others, to be written together. */
  #batch: FileWriter[] = [];
  #batchBytes = 0;
  #batchMemory: SharedArrayBuffer | undefined;
  readonly #memory = new BatchMemory(BATCH_BYTES + JOINED_BYTES);
  readonly #noteDigests: ReceiveOrder['noteDigests'];
  readonly #digests: Uint8Array[] = [];
  #digestBytes = 0;
  #failure: { readonly error: unknown } | undefined;
  #count = 0;
  #descriptionBytes = 0;
  #bytes = 0;
  /** Bytes of the files that stay or have come: what is older and was not listed is removed. */
  #treeBytes = 0;
  #isListed = false;
  #isFinished = false;

  constructor({ root, call, progress, writeFiles, noteDigests }: ReceiveOrder) {
    this.#root = root;
    this.#call = call;
    this.#progress = progress;
    this.#writeFiles = writeFiles;
    this.#noteDigests = noteDigests;
  }

  async run(): Promise<number> {
    await this.#noteOlder('');
    for await (const message of this.#call.messages()) {
      this.#bytes += message.length;
      this.#progress.bytes(this.#bytes);
      if (this.#isFinished) continue;
      if (isTurnOver()) await turn();
      const piece = readPiece(message);
      // Most packets are done at once: a promise for each of them would cost more than they do.
      const work = piece ? this.#data(piece) : this.#take(readPacket(message), message.length);
      if (work) await work;
      const asking = this.#request();
      if (asking) await asking;
    }
    if (!this.#isFinished) throw invalid('the client ended the transfer of files before its end');
    return this.#treeBytes;
  }

  async close(): Promise<void> {
    await Promise.all(this.#ending);
    for (const file of this.#arriving.values()) await file.abandon();
  }

  #take(packet: Packet, length: number): Promise<void> | undefined {
    switch (packet.type) {
      case Packet_Type.STAT:
        if (this.#isListed) throw invalid('the client sent a file behind the last one');
        return packet.stat === undefined ? this.#listed() : this.#stat(packet.stat, length);
      case Packet_Type.DATA:
        return this.#data(packet);
      case Packet_Type.ERR:
        throw invalid(`error from sender: ${Buffer.from(packet.data).toString('utf8', 0, 4096)}`);
      case Packet_Type.FIN:
        throw invalid('the client ended the transfer of files before its end');
      default:
        throw invalid('the client sent an unknown packet');
    }
  }

  #stat(stat: Stat, length: number): Promise<void> | undefined {
    const id = this.#count++;
    this.#descriptionBytes += length + DESCRIPTION_BYTES;
    if (this.#count > MAX_FILES || this.#descriptionBytes > MAX_DESCRIPTION_BYTES)
      throw invalid('the context has too many files');
    const ended = this.#order.next(stat);
    if (ended.some((directory) => this.#older.has(directory)))
      return this.#dropAll(ended).then(() => this.#described(id, stat));
    return this.#described(id, stat);
  }

  async #dropAll(directories: readonly string[]): Promise<void> {
    for (const directory of directories) await this.#dropOlder(directory);
  }

  #described(id: number, stat: Stat): Promise<void> | undefined {
    const slash = stat.path.lastIndexOf('/');
    const parent = slash < 0 ? '' : stat.path.slice(0, slash);
    const wasThere = this.#older.get(parent)?.delete(stat.path.slice(slash + 1)) === true;
    const path = join(this.#root, stat.path);
    const older = wasThere ? lstatSync(path, { bigint: true, throwIfNoEntry: false }) : undefined;
    const kind = kindOf(stat.mode);
    if (kind === 'directory') return this.#directory(stat, path, older);
    if (kind === 'file' && stat.linkname === '') {
      this.#files.add(stat.path);
      if (older !== undefined && isSameFile(older, stat)) {
        this.#treeBytes += Number(older.size);
        return undefined;
      }
    }
    if (older !== undefined || kind === 'symlink' || kind === 'fifo') return this.#replace(id, stat, path, older);
    this.#want(id, stat);
    return undefined;
  }

  /** Asks for a regular file later, or links it. */
  #want(id: number, stat: Stat): void {
    if (kindOf(stat.mode) !== 'file') return;
    if (stat.linkname === '') this.#wanted.push({ id, stat });
    else this.#links.push(stat);
  }

  async #replace(id: number, stat: Stat, path: string, older: BigIntStats | undefined): Promise<void> {
    const kind = kindOf(stat.mode);
    const isLink = kind === 'symlink';
    if (isLink && older?.isSymbolicLink() === true && (await readlink(path)) === stat.linkname)
      return setOwner(path, stat, older);
    if (older !== undefined) await rm(path, { recursive: true, force: true });
    if (isLink) {
      await symlink(stat.linkname, path);
      setTimes(path, ...splitTime(stat.modTime));
      setOwner(path, stat, undefined);
    } else if (kind === 'fifo') {
      makeFifo(path);
      setAttributes(path, stat);
    } else this.#want(id, stat);
  }

  async #directory(stat: Stat, path: string, older: BigIntStats | undefined): Promise<void> {
    this.#directories.push(stat);
    if (older?.isDirectory() === true) return this.#noteOlder(stat.path);
    if (older !== undefined) await rm(path, { force: true });
    await mkdir(path);
  }

  async #noteOlder(directory: string): Promise<void> {
    const names = await readdir(join(this.#root, directory));
    if (names.length > 0) this.#older.set(directory, new Set(names));
  }

  /** Removes what an older state had in a directory and the client has no more. */
  async #dropOlder(directory: string): Promise<void> {
    const older = this.#older.get(directory);
    if (older === undefined) return;
    this.#older.delete(directory);
    for (const name of older) await rm(join(this.#root, directory, name), { recursive: true, force: true });
  }

  async #listed(): Promise<void> {
    this.#isListed = true;
    await this.#dropAll(this.#order.rest());
  }

  /** Asks for files that have changed, and ends the transfer when all are here. Returns nothing when that is done. */
  #request(): Promise<void> | undefined {
    // Requests go together, because one that goes alone costs as much as the bytes of a small file.
    const isMore = this.#nextWanted < this.#wanted.length && this.#arriving.size <= MAX_REQUESTS / 2;
    const isEnd = this.#isListed && this.#arriving.size === 0;
    return isMore || isEnd ? this.#ask() : undefined;
  }

  async #ask(): Promise<void> {
    const next = this.#nextWanted;
    const asked = this.#wanted.slice(next, next + MAX_REQUESTS - this.#arriving.size);
    this.#nextWanted += asked.length;
    for (const { id, stat } of asked) this.#arriving.set(id, new FileWriter(join(this.#root, stat.path), stat));
    if (asked.length > 0) await this.#call.send(...asked.map(({ id }) => requestPacket(id)));
    if (!this.#isListed || this.#arriving.size > 0) return;
    for (const file of this.#batch.splice(0)) this.#begin(() => file.end(), file.heldBytes, [file]);
    await Promise.all(this.#ending);
    if (this.#failure !== undefined) throw this.#failure.error;
    await this.#finish();
    if (this.#digestBytes >= MIN_NOTED_BYTES) await this.#noteDigests?.(this.#digests);
    this.#isFinished = true;
    await this.#call.send(encode(PacketSchema, { type: Packet_Type.FIN }));
    this.#call.end();
  }

  #data({ id, data }: Pick<Packet, 'id' | 'data'>): Promise<void> | undefined {
    const file = this.#arriving.get(id);
    if (file === undefined) throw invalid(`invalid file request ${id}`);
    this.#treeBytes += data.length;
    if (data.length > 0) return file.write(data);
    this.#arriving.delete(id);
    return this.#end(file);
  }

  /**
   * Begins to write the rest of a file; returns nothing, or resolves, when another may begin.
   * @throws what an earlier one failed with.
   */
  #end(file: FileWriter): Promise<void> | undefined {
    if (file.isInMemory) {
      this.#batchMemory ??= this.#memory.take();
      file.moveTo(this.#batchMemory, this.#batchBytes);
      this.#batch.push(file);
      this.#batchBytes += file.heldBytes;
      if (this.#batch.length >= BATCH_FILES || this.#batchBytes >= BATCH_BYTES) this.#writeBatch();
    } else this.#begin(() => file.end(), file.heldBytes, [file]);
    if (this.#isCrowded()) return this.#waitForEndings();
    if (this.#failure !== undefined) throw this.#failure.error;
    return undefined;
  }

  #isCrowded(): boolean {
    return this.#ending.size >= MAX_ENDING || this.#endingBytes > MAX_ENDING_BYTES;
  }

  async #waitForEndings(): Promise<void> {
    while (this.#isCrowded()) await Promise.race(this.#ending);
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  #writeBatch(): void {
    const files = this.#batch;
    const bytes = this.#batchBytes;
    const memory = this.#batchMemory ?? this.#memory.take();
    this.#batch = [];
    this.#batchBytes = 0;
    this.#batchMemory = undefined;
    const isDigested = this.#noteDigests !== undefined && this.#digestBytes < MAX_RECORDS * RECORD_BYTES;
    const write = async (): Promise<void> => {
      const records = await this.#writeFiles(FileWriter.batch(files, memory, isDigested));
      this.#memory.giveBack(memory);
      this.#digestBytes += records.length;
      this.#digests.push(records);
    };
    this.#begin(write, bytes, files);
  }

  #begin(write: () => Promise<void>, bytes: number, files: readonly FileWriter[]): void {
    const ending = write().catch(async (error: unknown) => {
      this.#failure ??= { error };
      for (const file of files) await file.abandon();
    });
    const noted = ending.then(() => {
      this.#ending.delete(noted);
      this.#endingBytes -= bytes;
    });
    this.#ending.add(noted);
    this.#endingBytes += bytes;
  }

  /** Makes hard links, whose targets are complete now, and sets what the making of files in directories changed. */
  async #finish(): Promise<void> {
    for (const stat of this.#links) {
      if (!this.#files.has(stat.linkname)) throw invalid(`the client sent a link to ${JSON.stringify(stat.linkname)}`);
      await link(join(this.#root, stat.linkname), join(this.#root, stat.path));
    }
    for (const stat of this.#directories.toReversed()) {
      await turn();
      setAttributes(join(this.#root, stat.path), stat);
    }
  }
}

/** Sets owner, permissions and time of a directory or a FIFO that was just made. */
function setAttributes(path: string, { mode, uid, gid, modTime }: Stat): void {
  if (uid !== 0 || gid !== 0) chownSync(path, uid, gid);
  chmodSync(path, permissionsOf(mode));
  setTimes(path, ...splitTime(modTime));
}

/** Tells whether a file is what the client describes, so that its bytes need not travel. */
function isSameFile(file: BigIntStats, stat: Stat): boolean {
  return (
    file.isFile() &&
    file.size === stat.size &&
    file.mtimeNs === stat.modTime &&
    Number(file.mode & 0o7777n) === permissionsOf(stat.mode) &&
    Number(file.uid) === stat.uid &&
    Number(file.gid) === stat.gid &&
    // A link of an older state might be a file of its own now.
    file.nlink === 1n
  );
}

function setOwner(path: string, { uid, gid }: Stat, older: BigIntStats | undefined): void {
  if (Number(older?.uid ?? 0n) !== uid || Number(older?.gid ?? 0n) !== gid) lchownSync(path, uid, gid);
}
