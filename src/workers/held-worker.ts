/**
 * Worker threads whose code was read when the daemon started, so that they can be started as long as it runs, even when
 * its files have been replaced or deleted meanwhile. The bundle (scripts/bundle.mjs) gives this class to piscina in
 * place of Node's Worker: the file that piscina names is part of the code that is held here.
 *
 * A start of a thread takes 30 ms of processor time, of which Node's own part is most. So a thread that a pool does not
 * need any more is spare for a while, and the next pool that wants one has it: all threads are alike, but those that
 * have changed for good.
 */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Worker as NodeWorker, type Transferable, type WorkerOptions } from 'node:worker_threads';
import { threadStarts } from '../sys/process/busy-memory.js';
import { LOAD_SCRIPT, type ThreadData } from './thread-script.js';

export { receiveMessageOnPort } from 'node:worker_threads';

/** The name of the script, with the hash of its content, so that it never meets the code of another one. */
declare const ENGINED_THREAD: string;

/** A thread has 10 MB. So many are spare at most, for so long. */
const MOST_SPARE = 2;
const SPARE_MS = 1000;
/**
 * One of them stays longer, with its warm code: who copies again within that time does not wait for a start, and not
 * for code that V8 has not made fast yet.
 */
const ONE_SPARE_MS = 120_000;
/** Where piscina counts the tasks that a thread was given, and those that it has answered. */
const [REQUESTS, RESPONSES] = [0, 1] as const;

const text = readFileSync(new URL(ENGINED_THREAD, import.meta.url), 'latin1');
const code = readCode(new URL(ENGINED_THREAD.replace(/cjs$/, 'code'), import.meta.url));
let library: string | undefined;
/** The last one has worked last. */
const spare: HeldThread[] = [];

/** Piscina calls it with `new`, in the place of Node's class, and gets what it returns. */
export function Worker(_file: string, options: WorkerOptions): NodeWorker {
  return spare.pop()?.leaveSpare() ?? new HeldThread(options);
}

class HeldThread extends NodeWorker {
  readonly #changed: Int32Array;
  #counts: Int32Array | undefined;
  #expiry: NodeJS.Timeout | undefined;
  #isEnding = false;

  constructor(options: WorkerOptions) {
    threadStarts();
    library ??= nativeLibrary();
    const changed = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    super(LOAD_SCRIPT, { ...options, eval: true, workerData: { text, code, library, changed } satisfies ThreadData });
    this.#changed = changed;
    this.#watch();
  }

  /** The one message of a pool has the numbers that it shares with the thread. */
  override postMessage(message: { readonly sharedBuffer: Int32Array }, transferList?: readonly Transferable[]): void {
    this.#counts = message.sharedBuffer;
    super.postMessage(message, transferList);
  }

  /** A pool asks for it when its port to the thread is closed, so that the process waits for the thread's end. */
  override ref(): void {
    if (this.#isEnding) super.ref();
  }

  /** Ends the thread, or keeps it when it has answered all that it was given. */
  override terminate(): Promise<number> {
    const [requests, responses] = [this.#counts?.[REQUESTS], this.#counts?.[RESPONSES]];
    const hasDone = requests !== undefined && requests === responses;
    if (!hasDone || this.#changed[0] !== 0 || this.#isEnding || spare.length >= MOST_SPARE) return this.#end();
    // For its pool it has ended.
    this.off('exit', this.#leave).emit('exit', 0);
    // Those of other events are Node's own.
    for (const event of ['message', 'error', 'exit']) this.removeAllListeners(event);
    this.#watch();
    this.#expiry = setTimeout(() => void this.#end(), spare.length === 0 ? ONE_SPARE_MS : SPARE_MS).unref();
    spare.push(this);
    return Promise.resolve(0);
  }

  leaveSpare(): this {
    clearTimeout(this.#expiry);
    return this;
  }

  /** One that fails or ends by itself is nobody's any more. */
  #watch(): void {
    this.on('error', this.#leave).on('exit', this.#leave);
  }

  readonly #leave = (): void => {
    this.#isEnding = true;
    clearTimeout(this.#expiry);
    const at = spare.indexOf(this);
    if (at >= 0) spare.splice(at, 1);
  };

  #end(): Promise<number> {
    this.#leave();
    return super.terminate();
  }
}

/** Reads V8's code of the script into memory that all threads share. */
function readCode(url: URL): Uint8Array | undefined {
  if (!existsSync(url)) return undefined;
  const bytes = readFileSync(url);
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  return shared;
}

/**
 * Returns the library of koffi, which the process has loaded already: a thread gets it by name and does not need its
 * file.
 */
function nativeLibrary(): string | undefined {
  return Object.keys(createRequire(import.meta.url).cache).find((path) => path.endsWith('/koffi.node'));
}
