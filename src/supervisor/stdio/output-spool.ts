/**
 * Keeps what was read of a container's outputs until its log has it, so that a kill of the daemon at any instant loses
 * and repeats nothing. Bytes go from a pipe into a file in one step of the kernel (`spliceToFile`), so the size of the
 * file tells what has left the pipe. A note in another file tells up to which place the log had which bytes. The next
 * daemon counts the records after that place, and goes on behind the bytes that these are of.
 *
 * Files and note need to outlive this process only, not the machine, whose pipes end with it.
 */
import { closeSync, constants, fstatSync, ftruncateSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { LogLedger, LogPlace, StreamName } from '../../ports/logs.js';
import type { OutputSpool } from '../../ports/supervisor.js';
import { PIECE_BYTES, takePiece } from '../../sys/files/piece-pool.js';
import { removeFileNow } from '../../sys/files/remove-file.js';
import { spliceToFile } from '../../sys/files/splice.js';
import { readPiece, type FifoOutput, type PieceKeeper } from './fifo-output.js';

const NOTE = 'spool';
/** A note is written as a whole: the kernel does not stop within a page. */
const NOTE_BYTES = 512;
/** A file of which the log has everything is emptied from this size on: so much memory a container at rest may hold. */
const RESET_BYTES = 16 << 10;
/** A larger file is replaced by one with the bytes that the log has not, which are few when it is up to date. */
const FULL_BYTES = 1 << 20;
const MOVED_BYTES = 32 << 10;

/** Where the log is in the file of one stream. */
interface NotedStream {
  /** Which of the two files. */
  readonly file: number;
  readonly from: number;
}

interface Note extends LogPlace {
  /** The boot of the machine in which it was written. */
  readonly boot: string;
  readonly streams: Readonly<Partial<Record<StreamName, NotedStream>>>;
}

const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();

export class FileSpool implements OutputSpool {
  readonly #dir: string;
  readonly #outputs: Readonly<Partial<Record<StreamName, FifoOutput>>>;
  readonly #onFailure: (error: unknown) => void;
  readonly #streams = new Map<StreamName, StreamSpool>();
  #ledger: LogLedger | undefined;
  #noteFd: number | undefined;
  #epoch = 0;

  /**
   * @param dir the directory of the FIFOs.
   * @param onFailure called once if the output cannot be kept any more. It is read all the same.
   */
  constructor(
    dir: string,
    outputs: Readonly<Partial<Record<StreamName, FifoOutput>>>,
    onFailure: (error: unknown) => void,
  ) {
    this.#dir = dir;
    this.#outputs = outputs;
    this.#onFailure = onFailure;
  }

  async begin(ledger: LogLedger): Promise<void> {
    if (Object.keys(this.#outputs).length === 0) return;
    const noted = readNote(join(this.#dir, NOTE));
    const left = { stdout: this.#left('stdout', noted), stderr: this.#left('stderr', noted) };
    const logged = noted === undefined ? { stdout: 0, stderr: 0 } : await ledger.loggedSince(noted, left);
    this.#ledger = ledger;
    for (const name of ['stdout', 'stderr'] as const) {
      const from = noted?.streams[name];
      const rest = left[name].subarray(logged[name]);
      const start = from && rest.length > 0 ? { file: from.file, from: from.from + logged[name] } : undefined;
      this.#outputs[name]?.keepIn(this.#spool(name, start), rest);
    }
    try {
      this.#noteFd = openSync(join(this.#dir, NOTE), constants.O_WRONLY | constants.O_CREAT, 0o600);
      this.#note();
    } catch (error) {
      this.#fail(error);
    }
    ledger.onProgress(() => this.#advance());
  }

  get isKeeping(): boolean {
    return this.#ledger !== undefined;
  }

  leave(): void {
    for (const spool of this.#streams.values()) spool.close();
    this.#streams.clear();
    if (this.#noteFd !== undefined) closeSync(this.#noteFd);
    this.#noteFd = undefined;
  }

  remove(): void {
    this.leave();
    removeSpool(this.#dir);
  }

  /** Undefined when there can be no files: the output is read all the same. */
  #spool(name: StreamName, start: NotedStream | undefined): StreamSpool | undefined {
    try {
      const spool = new StreamSpool(join(this.#dir, name), start, {
        failed: (error) => this.#fail(error),
        full: () => this.#advance(),
      });
      this.#streams.set(name, spool);
      return spool;
    } catch (error) {
      this.#fail(error);
      return undefined;
    }
  }

  /** Returns the bytes that have left the pipe after the place that is noted. */
  #left(name: StreamName, noted: Note | undefined): Buffer {
    const from = noted?.streams[name];
    if (from === undefined) return Buffer.alloc(0);
    try {
      return readFileSync(join(this.#dir, `${name}.${from.file}`)).subarray(from.from);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return Buffer.alloc(0);
      throw error;
    }
  }

  /** The log has more than before. All is in one turn, so that no byte moves meanwhile. */
  #advance(): void {
    if (this.#noteFd === undefined || this.#ledger === undefined) return;
    const { taken, epoch } = this.#ledger.progress();
    try {
      let isDue = epoch !== this.#epoch;
      for (const [name, spool] of this.#streams) if (spool.advance(taken[name])) isDue = true;
      if (isDue) this.#note();
    } catch (error) {
      this.#fail(error);
    }
    for (const spool of this.#streams.values()) spool.tellRoom();
  }

  #note(): void {
    if (this.#noteFd === undefined || this.#ledger === undefined) return;
    const { place, epoch } = this.#ledger.progress();
    const streams: Partial<Record<StreamName, NotedStream>> = {};
    for (const [name, spool] of this.#streams) streams[name] = spool.noted();
    const note: Note = { boot, file: place.file, offset: place.offset, streams };
    writeSync(this.#noteFd, JSON.stringify(note).padEnd(NOTE_BYTES), 0);
    this.#epoch = epoch;
    for (const spool of this.#streams.values()) spool.forgetMoved();
  }

  /** Goes on without files, for instance when there is no room for them. */
  #fail(error: unknown): void {
    if (this.#ledger === undefined) return;
    this.#ledger = undefined;
    this.#onFailure(error);
    // It would not become true again.
    removeFileNow(join(this.#dir, NOTE));
    for (const spool of this.#streams.values()) spool.giveUp();
  }
}

/** The file with the bytes of one stream that have left the pipe. Positions in the log are bytes that it was given. */
class StreamSpool implements PieceKeeper {
  #fd: number | undefined;
  #file: number;
  #size: number;
  /** The log has everything before it. */
  #from: number;
  /** Place in the file of the first byte that the log was given, negative when that byte was in an earlier file. */
  #origin: number;
  /** The earlier file, until a note tells that there is another. */
  #moved: number | undefined;
  #onRoom: (() => void)[] = [];
  #isGivenUp = false;

  constructor(
    private readonly path: string,
    start: NotedStream | undefined,
    private readonly events: { failed(error: unknown): void; full(): void },
  ) {
    this.#file = start?.file ?? 0;
    this.#from = start?.from ?? 0;
    this.#origin = this.#from;
    this.#fd = this.#open(start === undefined);
    this.#size = start === undefined ? 0 : fstatSync(this.#fd).size;
  }

  get isFull(): boolean {
    return this.#size >= FULL_BYTES && !this.#isGivenUp;
  }

  onceRoom(callback: () => void): void {
    this.#onRoom.push(callback);
    // The log tells nothing while it waits for the end of a line, and has everything before that line then.
    this.events.full();
  }

  take(fifo: number): Buffer | undefined {
    if (this.#fd === undefined || this.#isGivenUp) return readPiece(fifo);
    let count: number | undefined;
    try {
      count = spliceToFile(fifo, this.#fd, this.#size, PIECE_BYTES);
    } catch (error) {
      this.events.failed(error);
      return readPiece(fifo);
    }
    if (count === undefined) return undefined;
    const piece = takePiece(count);
    if (readSync(this.#fd, piece, 0, count, this.#size) !== count) throw new Error('a spool of output is too short');
    this.#size += count;
    return piece;
  }

  /** @param taken as many bytes the log has. @returns true when a note is due. */
  advance(taken: number): boolean {
    this.#from = this.#origin + taken;
    const left = this.#size - this.#from;
    if (left === 0 && this.#size >= RESET_BYTES && this.#fd !== undefined) {
      // A note that tells of more than there is tells that nothing is left.
      ftruncateSync(this.#fd, 0);
    } else if (this.#size >= FULL_BYTES && left <= MOVED_BYTES && this.#fd !== undefined) {
      const rest = Buffer.allocUnsafe(left);
      readSync(this.#fd, rest, 0, left, this.#from);
      this.#moved = this.#fd;
      this.#file = 1 - this.#file;
      this.#fd = this.#open(true);
      writeSync(this.#fd, rest, 0, left, 0);
    } else return false;
    this.#size = left;
    this.#from = 0;
    this.#origin = -taken;
    return true;
  }

  tellRoom(): void {
    if (this.isFull || this.#onRoom.length === 0) return;
    const waiting = this.#onRoom;
    this.#onRoom = [];
    for (const callback of waiting) callback();
  }

  noted(): NotedStream {
    return { file: this.#file, from: this.#from };
  }

  forgetMoved(): void {
    if (this.#moved === undefined) return;
    ftruncateSync(this.#moved, 0);
    closeSync(this.#moved);
    this.#moved = undefined;
  }

  /** Nothing is put into the file any more. */
  giveUp(): void {
    this.#isGivenUp = true;
    this.tellRoom();
  }

  close(): void {
    for (const fd of [this.#fd, this.#moved]) if (fd !== undefined) closeSync(fd);
    this.#fd = this.#moved = undefined;
  }

  #open(isNew: boolean): number {
    const flags = constants.O_RDWR | constants.O_CREAT | (isNew ? constants.O_TRUNC : 0);
    return openSync(`${this.path}.${this.#file}`, flags, 0o600);
  }
}

/** Removes the files of a spool, if there is one. */
export function removeSpool(dir: string): void {
  // Without the note, which goes first, the others mean nothing.
  for (const name of [NOTE, 'stdout.0', 'stdout.1', 'stderr.0', 'stderr.1']) removeFileNow(join(dir, name));
}

/** Returns the note; undefined when there is none, or only one from before the machine was started. */
function readNote(path: string): Note | undefined {
  let note: Note;
  try {
    note = JSON.parse(readFileSync(path, 'utf8')) as Note;
  } catch {
    return undefined; // There is none, or it was never finished: then nothing has left the pipe.
  }
  return note.boot === boot ? note : undefined;
}
