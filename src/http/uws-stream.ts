/**
 * A streamed reply on a connection that uWebSockets.js serves, for requests whose body is still arriving. The library
 * cannot send a head by itself: it goes out with the first piece, which does not matter to a client that is sending.
 */
import { onNextPoll } from './next-poll.js';
import type { ResponseStream } from './response-stream.js';
import { MAX_BEHIND_BYTES, StreamState } from './stream-state.js';
import type { StreamOwner } from './transport.js';
import type { HttpResponse } from './uws.js';

/** The connection does these parts for its stream. */
export interface UwsStreamHost {
  /** Writes status and headers; called once, corked. */
  writeHead(res: HttpResponse): void;
  /** Ends the reply. */
  end(res: HttpResponse): void;
  /** Returns false when this many bytes must not be written in a callback of the library. */
  takesInCallback(bytes: number): boolean;
}

/** The library frames a piece, and its end, with no more bytes than this. */
const FRAME_BYTES = 64;

/** The library collects this many bytes, however large the head is. */
const PART_BYTES = 8 * 1024;

export class UwsResponseStream implements ResponseStream {
  readonly #res: HttpResponse;
  readonly #host: UwsStreamHost;
  readonly #state: StreamState;
  #headWritten = false;
  #behindBytes = 0;
  /** The connection is over, and `#res` with it, also when the writer had ended the stream before. */
  #isCut = false;
  /** These pieces wait for the next poll. */
  #waiting: (string | Uint8Array)[] | undefined;

  constructor(res: HttpResponse, host: UwsStreamHost, owner: StreamOwner) {
    this.#res = res;
    this.#host = host;
    this.#state = new StreamState(owner);
    res.onWritable(() => {
      // The library sends what it holds only with a further write; an empty one is enough.
      res.cork(() => undefined);
      if (this.#waiting === undefined) this.#caughtUp();
      return true;
    });
  }

  get closed(): boolean {
    return this.#state.closed;
  }

  write(chunk: string | Uint8Array): boolean {
    if (this.closed) return false;
    if (chunk.length === 0) return true;
    let more = false;
    // A character has at most three bytes.
    const most = FRAME_BYTES + (typeof chunk === 'string' ? 3 * chunk.length : chunk.length);
    if (this.#waiting !== undefined || !this.#host.takesInCallback(most)) {
      this.#wait().push(chunk);
    } else {
      this.#res.cork(() => {
        this.#writeHead();
        more = this.#res.write(chunk);
      });
    }
    if (more) return true;
    this.#behindBytes += chunk.length;
    this.#state.fallBehind();
    // The first piece counts in full, however much of it the socket took: only a writer that goes on adds to it.
    if (this.#behindBytes > MAX_BEHIND_BYTES + chunk.length) this.abort();
    return false;
  }

  ready(): Promise<void> {
    return this.#state.ready();
  }

  async lend(): Promise<undefined> {
    // The library is still receiving on this connection.
  }

  end(): void {
    if (this.closed) return;
    if (this.#waiting === undefined && !this.#host.takesInCallback(FRAME_BYTES)) this.#wait();
    this.#state.close(false);
    if (this.#waiting === undefined) this.#finish();
  }

  abort(): void {
    if (this.closed) return;
    this.#res.close();
    this.gone();
  }

  onClose(callback: () => void): void {
    this.#state.onClose(callback);
  }

  /** Ends the stream because the client is gone; the connection calls it. */
  gone(): void {
    this.#isCut = true;
    this.#state.close(true);
  }

  #writeHead(): void {
    if (this.#headWritten) return;
    this.#headWritten = true;
    this.#host.writeHead(this.#res);
  }

  #caughtUp(): void {
    this.#behindBytes = 0;
    this.#state.drained();
  }

  #finish(): void {
    this.#res.cork(() => {
      this.#writeHead();
      this.#host.end(this.#res);
    });
  }

  #wait(): (string | Uint8Array)[] {
    if (this.#waiting === undefined) {
      this.#waiting = [];
      onNextPoll(() => this.#writeWaiting());
    }
    return this.#waiting;
  }

  /** Writes in parts, each of which the library sends at once, or keeps. */
  #writeWaiting(): void {
    const pieces = this.#waiting ?? [];
    this.#waiting = undefined;
    let more = true;
    for (const piece of pieces) {
      const bytes = typeof piece === 'string' ? Buffer.from(piece) : piece;
      for (let at = 0; at < bytes.length; at += PART_BYTES) {
        // The library ends the connection when the client has left.
        if (this.#isCut) return;
        this.#res.cork(() => {
          this.#writeHead();
          more = this.#res.write(bytes.subarray(at, at + PART_BYTES));
        });
      }
    }
    if (this.#isCut) return;
    if (this.closed) this.#finish();
    else if (more) this.#caughtUp();
  }
}
