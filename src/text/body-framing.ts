/**
 * Finds where the body of a request ends, and which of the received bytes belong to it (RFC 9112, sections 6.2 and
 * 7.1).
 */
import { invalid } from '../errors/engine-error.js';

export interface BodyFraming {
  readonly isComplete: boolean;
  /** No more than this may be received at once. */
  readonly wantedBytes: number;
  /**
   * Moves the bytes of the body among those received to the front, and returns how many they are.
   * @throws EngineError invalid when they are no such body.
   */
  extract(received: Buffer): number;
}

export class SizedBody implements BodyFraming {
  #rest: number;

  constructor(length: number) {
    this.#rest = length;
  }

  get isComplete(): boolean {
    return this.#rest === 0;
  }

  get wantedBytes(): number {
    return this.#rest;
  }

  extract(received: Buffer): number {
    this.#rest -= received.length;
    return received.length;
  }
}

/** A chunk, and what is between it and the one before. */
export interface NextChunk {
  readonly bytes: number;
  readonly frame: Buffer;
}

/** Lines between the data: sizes with their extensions, and trailer fields. Neither means anything to us. */
const MAX_LINE_BYTES = 4096;
const MAX_TRAILER_BYTES = 16 * 1024;
const LF = 0x0a;

/**
 * A body in chunks. The connection must end with the reply, because bytes behind the body may be received with it and
 * are lost.
 */
export class ChunkedBody implements BodyFraming {
  readonly wantedBytes = Infinity;
  #state: 'size' | 'data' | 'data-end' | 'trailer' | 'complete' = 'size';
  /** So many bytes of this chunk's data are still to come. */
  #rest = 0;
  /** This part of a line has come. */
  #line = '';
  #trailerBytes = 0;
  /** The line of the last size. */
  #sizeLine = '';
  #next: NextChunk = { bytes: 0, frame: Buffer.alloc(0) };

  get isComplete(): boolean {
    return this.#state === 'complete';
  }

  /** So many bytes of the chunk under way are still to come; 0 between chunks. */
  get chunkRest(): number {
    return this.#state === 'data' ? this.#rest : 0;
  }

  /** True while a chunk is under way, and behind one, of whose frame nothing has come: `likelyNext` may follow then. */
  get isInChunks(): boolean {
    return this.#state === 'data' || (this.#state === 'data-end' && this.#line === '');
  }

  /** The next chunk, and the frame in front of it, if it is like the one under way, as it mostly is. */
  get likelyNext(): NextChunk {
    return this.#next;
  }

  /** Has received bytes of the chunk under way, not more than `chunkRest`, where they are wanted. */
  passData(bytes: number): void {
    this.#rest -= bytes;
    if (this.#rest === 0) this.#state = 'data-end';
  }

  /** Has received the `frame` of `likelyNext` behind a chunk, maybe more such chunks, and so much of the last one. */
  passChunk(bytes: number): void {
    this.#state = 'data';
    this.#rest = this.#next.bytes;
    this.passData(bytes);
  }

  extract(received: Buffer): number {
    let length = 0;
    for (let at = 0; at < received.length && !this.isComplete;) {
      if (this.#state === 'data') {
        const end = Math.min(at + this.#rest, received.length);
        received.copyWithin(length, at, end);
        length += end - at;
        this.passData(end - at);
        at = end;
        continue;
      }
      const end = received.indexOf(LF, at);
      this.#line += received.toString('latin1', at, end < 0 ? received.length : end + 1);
      if (this.#line.length > MAX_LINE_BYTES) throw malformed();
      if (end < 0) return length;
      at = end + 1;
      if (!this.#line.endsWith('\r\n')) throw malformed();
      this.#takeLine(this.#line.slice(0, -2));
      this.#line = '';
    }
    return length;
  }

  #takeLine(line: string): void {
    if (this.#state === 'size') {
      const size = /^([0-9a-fA-F]{1,12})(?:[ \t]*;[\t -~\x80-\xff]*)?$/.exec(line)?.[1];
      if (size === undefined) throw malformed();
      this.#rest = parseInt(size, 16);
      this.#state = this.#rest === 0 ? 'trailer' : 'data';
      if (line === this.#sizeLine) return;
      this.#sizeLine = line;
      this.#next = { bytes: this.#rest, frame: Buffer.from(`\r\n${line}\r\n`, 'latin1') };
    } else if (this.#state === 'data-end') {
      if (line !== '') throw malformed();
      this.#state = 'size';
    } else if (line === '') {
      this.#state = 'complete';
    } else {
      this.#trailerBytes += line.length;
      if (this.#trailerBytes > MAX_TRAILER_BYTES) throw malformed();
    }
  }
}

const malformed = (): Error => invalid('malformed chunked encoding of the request body', { code: 'BAD_CHUNKS' });
