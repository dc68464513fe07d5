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
import { setTimes } from '../../sys/files/inode.js';
import { turn } from '../../text/turns.js';
import { kindOf, PathOrder, permissionsOf, splitTime } from './file-stat.js';
import { FileWriter } from './file-writer.js';
import type { MessageCall } from './grpc-client.js';
import { decode, encode } from './grpc-messages.js';
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

/** @throws EngineError for what the client does wrong, for its own error, and for a disk that is full. */
export async function receiveTree(order: ReceiveOrder): Promise<void> {
  const { call } = order;
  const receiver = new TreeReceiver(order);
  try {
    await receiver.run();
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
  readonly #noteDigests: ReceiveOrder['noteDigests'];
  readonly #digests: Uint8Array[] = [];
  #digestBytes = 0;
  #failure: { readonly error: unknown } | undefined;
  #count = 0;
  #descriptionBytes = 0;
  #bytes = 0;
  #isListed = false;
  #isFinished = false;

  constructor({ root, call, progress, writeFiles, noteDigests }: ReceiveOrder) {
    this.#root = root;
    this.#call = call;
    this.#progress = progress;
    this.#writeFiles = writeFiles;
    this.#noteDigests = noteDigests;
  }

  async run(): Promise<void> {
    await this.#noteOlder('');
    for await (const message of this.#call.messages()) {
      this.#bytes += message.length;
      this.#progress.bytes(this.#bytes);
      if (this.#isFinished) continue;
      await turn();
      await this.#take(decode(PacketSchema, message), message.length);
    }
    if (!this.#isFinished) throw invalid('the client ended the transfer of files before its end');
  }

  async close(): Promise<void> {
    await Promise.all(this.#ending);
    for (const file of this.#arriving.values()) await file.abandon();
  }

  async #take(packet: Packet, length: number): Promise<void> {
    switch (packet.type) {
      case Packet_Type.STAT:
        if (this.#isListed) throw invalid('the client sent a file behind the last one');
        if (packet.stat === undefined) await this.#listed();
        else await this.#stat(packet.stat, length);
        break;
      case Packet_Type.DATA:
        await this.#data(packet);
        break;
      case Packet_Type.ERR:
        throw invalid(`error from sender: ${Buffer.from(packet.data).toString('utf8', 0, 4096)}`);
      case Packet_Type.FIN:
        throw invalid('the client ended the transfer of files before its end');
      default:
        throw invalid('the client sent an unknown packet');
    }
    await this.#request();
  }

  async #stat(stat: Stat, length: number): Promise<void> {
    const id = this.#count++;
    this.#descriptionBytes += length + DESCRIPTION_BYTES;
    if (this.#count > MAX_FILES || this.#descriptionBytes > MAX_DESCRIPTION_BYTES)
      throw invalid('the context has too many files');
    for (const ended of this.#order.next(stat)) await this.#dropOlder(ended);
    const slash = stat.path.lastIndexOf('/');
    const parent = slash < 0 ? '' : stat.path.slice(0, slash);
    const wasThere = this.#older.get(parent)?.delete(stat.path.slice(slash + 1)) === true;
    const path = join(this.#root, stat.path);
    const older = wasThere ? lstatSync(path, { bigint: true, throwIfNoEntry: false }) : undefined;
    const kind = kindOf(stat.mode);
    if (kind === 'directory') return this.#directory(stat, path, older);
    if (kind === 'file' && stat.linkname === '') {
      this.#files.add(stat.path);
      if (older !== undefined && isSameFile(older, stat)) return;
    } else if (kind === 'symlink' && older?.isSymbolicLink() === true && (await readlink(path)) === stat.linkname) {
      return setOwner(path, stat, older);
    }
    if (older !== undefined) await rm(path, { recursive: true, force: true });
    if (kind === 'symlink') {
      await symlink(stat.linkname, path);
      setTimes(path, ...splitTime(stat.modTime));
      setOwner(path, stat, undefined);
    } else if (kind === 'file') {
      if (stat.linkname === '') this.#wanted.push({ id, stat });
      else this.#links.push(stat);
    }
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
    for (const directory of this.#order.rest()) await this.#dropOlder(directory);
  }

  /** Asks for files that have changed, and ends the transfer when all are here. */
  async #request(): Promise<void> {
    // Requests go together, because one that goes alone costs as much as the bytes of a small file.
    const next = this.#nextWanted;
    const free = this.#arriving.size > MAX_REQUESTS / 2 ? 0 : MAX_REQUESTS - this.#arriving.size;
    const asked = this.#wanted.slice(next, next + free);
    this.#nextWanted += asked.length;
    for (const { id, stat } of asked) this.#arriving.set(id, new FileWriter(join(this.#root, stat.path), stat));
    if (asked.length > 0)
      await this.#call.send(...asked.map(({ id }) => encode(PacketSchema, { type: Packet_Type.REQ, id })));
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

  async #data({ id, data }: Packet): Promise<void> {
    const file = this.#arriving.get(id);
    if (file === undefined) throw invalid(`invalid file request ${id}`);
    if (data.length > 0) return file.write(data);
    this.#arriving.delete(id);
    await this.#end(file);
  }

  /** Begins to write the rest of a file; resolves when another may begin. @throws what an earlier one failed with. */
  async #end(file: FileWriter): Promise<void> {
    if (file.isInMemory) {
      this.#batch.push(file);
      this.#batchBytes += file.heldBytes;
      if (this.#batch.length >= BATCH_FILES || this.#batchBytes >= BATCH_BYTES) this.#writeBatch();
    } else this.#begin(() => file.end(), file.heldBytes, [file]);
    while (this.#ending.size >= MAX_ENDING || this.#endingBytes > MAX_ENDING_BYTES) await Promise.race(this.#ending);
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  #writeBatch(): void {
    const files = this.#batch;
    const bytes = this.#batchBytes;
    this.#batch = [];
    this.#batchBytes = 0;
    const isDigested = this.#noteDigests !== undefined && this.#digestBytes < MAX_RECORDS * RECORD_BYTES;
    const write = async (): Promise<void> => {
      const records = await this.#writeFiles(FileWriter.batch(files, isDigested));
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
      const path = join(this.#root, stat.path);
      if (stat.uid !== 0 || stat.gid !== 0) chownSync(path, stat.uid, stat.gid);
      chmodSync(path, permissionsOf(stat.mode));
      setTimes(path, ...splitTime(stat.modTime));
    }
  }
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
