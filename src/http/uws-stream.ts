/**
 * A streamed reply on a connection that uWebSockets.js serves, for requests whose body is still arriving. The library
 * cannot send a head by itself: it goes out with the first piece, which does not matter to a client that is sending.
 */
import type { ResponseStream } from './response-stream.js';
import { MAX_BEHIND_BYTES, StreamState } from './stream-state.js';
import type { StreamOwner } from './transport.js';
import type { HttpResponse } from './uws.js';

/** What the connection does for its stream. */
export interface UwsStreamHost {
  /** Writes status and headers; called once, corked. */
  writeHead(res: HttpResponse): void;
  /** Ends the reply. */
  end(res: HttpResponse): void;
}

export class UwsResponseStream implements ResponseStream {
  readonly #res: HttpResponse;
  readonly #host: UwsStreamHost;
  readonly #state: StreamState;
  #headWritten = false;
  #behindBytes = 0;

  constructor(res: HttpResponse, host: UwsStreamHost, owner: StreamOwner) {
    this.#res = res;
    this.#host = host;
    this.#state = new StreamState(owner);
    res.onWritable(() => {
      this.#behindBytes = 0;
      this.#state.drained();
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
    this.#res.cork(() => {
      this.#writeHead();
      more = this.#res.write(chunk);
    });
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
    // The library is still receiving from it.
  }

  end(): void {
    if (this.closed) return;
    this.#res.cork(() => {
      this.#writeHead();
      this.#host.end(this.#res);
    });
    this.#state.close(false);
  }

  abort(): void {
    if (this.closed) return;
    this.#res.close();
    this.gone();
  }

  onClose(callback: () => void): void {
    this.#state.onClose(callback);
  }

  /** The client is gone. For the connection. */
  gone(): void {
    this.#state.close(true);
  }

  #writeHead(): void {
    if (this.#headWritten) return;
    this.#headWritten = true;
    this.#host.writeHead(this.#res);
  }
}
