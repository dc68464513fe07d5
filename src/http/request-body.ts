/** The body of a request: the parser pushes it, and the handler may read it. */
import { Readable } from 'node:stream';
import { cancelled, unavailable, type EngineError } from '../errors/engine-error.js';
import type { PieceSource } from '../ports/archives.js';

/** A body stops and resumes the reading from the client by this. */
export interface BodySource {
  pause(): void;
  resume(): void;
}

/**
 * Limit for all bodies that are being collected, so that many clients with large ones do not fill the memory. Nothing
 * else bounds the time that a client takes for its body, so beyond the limit those of which nothing has come for the
 * longest time are given up: clients that stall must not have all others refused.
 */
const MAX_COLLECTING_BYTES = 256 * 1024 * 1024;

let collectingBytes = 0;

/** A body of which some bytes have been collected. */
interface Collection {
  bytes: number;
  /** Gives it up, which makes its bytes free. */
  readonly giveUp: () => void;
}

/** They are in the order of their latest pieces. */
const collections = new Set<Collection>();

function makeRoom(bytes: number): void {
  for (const collection of collections) {
    if (collectingBytes + bytes <= MAX_COLLECTING_BYTES) return;
    collection.giveUp();
  }
}

/** Counts a piece of a body, which makes it the latest. */
function count(collection: Collection, bytes: number): void {
  collections.delete(collection);
  makeRoom(bytes);
  collections.add(collection);
  collection.bytes += bytes;
  collectingBytes += bytes;
}

function endCollection(collection: Collection): void {
  collections.delete(collection);
  collectingBytes -= collection.bytes;
  collection.bytes = 0;
}

export class RequestBody implements PieceSource {
  readonly #source: BodySource;
  /**
   * These bytes arrived before a reader came: at most one receive buffer (512 KiB), since the source is paused then.
   */
  #early: Buffer[] = [];
  #complete = false;
  #failure: EngineError | undefined;
  #taken = false;
  #onChunk: ((chunk: Uint8Array) => void) | undefined;
  #onEnd: ((failure: EngineError | undefined) => void) | undefined;

  constructor(source: BodySource) {
    this.#source = source;
  }

  /** Returns a body that has arrived already. */
  static of(bytes: Buffer): RequestBody {
    const body = new RequestBody({ pause: () => undefined, resume: () => undefined });
    body.push(bytes, true);
    return body;
  }

  get complete(): boolean {
    return this.#complete;
  }

  /** Takes a piece. @param chunk is lent for the call. */
  push(chunk: Uint8Array, isLast: boolean): void {
    if (isLast) this.#complete = true;
    if (chunk.length > 0) {
      if (this.#onChunk !== undefined) {
        this.#onChunk(chunk);
      } else {
        this.#early.push(Buffer.from(chunk));
        this.pause();
      }
    }
    if (isLast) this.#onEnd?.(undefined);
  }

  /**
   * Fails the body, because no more bytes will come. The reason is that the client went away, unless another one is
   * given.
   */
  fail(reason = cancelled('the client closed the connection before the end of the request body')): void {
    if (this.#complete || this.#failure !== undefined) return;
    this.#failure = reason;
    this.#onEnd?.(this.#failure);
  }

  /**
   * Returns the whole body. @param inspect sees each piece before it is kept, and throws when the body exceeds its
   * bounds.
   * @throws EngineError as `inspect` throws; cancelled when the client went away; unavailable (code OVERLOADED) when it
   * stalls while others need the memory.
   */
  async collect(inspect: (piece: Uint8Array) => void): Promise<Buffer<ArrayBuffer>> {
    // Undefined once the body is refused: what still comes is read and forgotten.
    let chunks: Buffer[] | undefined = [];
    const collection = {
      bytes: 0,
      giveUp: () => {
        chunks = undefined;
        endCollection(collection);
        this.fail(unavailable('too many request bodies are being received', { code: 'OVERLOADED' }));
      },
    };
    try {
      return await new Promise((resolve, reject) => {
        const keep = (chunk: Uint8Array): void => {
          inspect(chunk);
          count(collection, chunk.length);
          chunks?.push(Buffer.from(chunk));
        };
        this.read(
          (chunk) => {
            if (chunks === undefined) return;
            try {
              keep(chunk);
            } catch (error) {
              chunks = undefined;
              reject(error);
            }
          },
          (failure) => (failure === undefined ? resolve(Buffer.concat(chunks ?? [])) : reject(failure)),
        );
      });
    } finally {
      endCollection(collection);
    }
  }

  /** Returns the body as a stream with backpressure up to the client. */
  stream(): Readable {
    const readable = new Readable({
      highWaterMark: 256 * 1024,
      read: () => this.resume(),
      // A reader that gives up leaves the rest to be discarded, so that the connection stays usable.
      destroy: (error, callback) => {
        this.#onChunk = () => undefined;
        this.resume();
        callback(error);
      },
    });
    // The client may go before the handler reads. A later reader still gets the error; until then nobody must handle
    // it.
    readable.on('error', () => undefined);
    this.read(
      (chunk) => {
        if (!readable.push(Buffer.from(chunk))) this.pause();
      },
      (failure) => {
        if (failure === undefined) readable.push(null);
        else readable.destroy(failure);
      },
    );
    return readable;
  }

  read(onChunk: (chunk: Uint8Array) => void, onEnd: (failure: EngineError | undefined) => void): void {
    if (this.#taken) throw new Error('the body of a request can be read only once');
    this.#taken = true;
    const early = this.#early;
    this.#early = [];
    this.#onChunk = onChunk;
    this.#onEnd = onEnd;
    this.resume();
    for (const chunk of early) onChunk(chunk);
    if (this.#complete || this.#failure !== undefined) onEnd(this.#failure);
  }

  // A complete body must not touch its source, which may serve another request by then.
  pause(): void {
    if (!this.#complete && this.#failure === undefined) this.#source.pause();
  }

  resume(): void {
    if (!this.#complete && this.#failure === undefined) this.#source.resume();
  }
}
