/** A streamed reply of which nothing is sent until the authorizer has allowed it. */
import type { ResponseStream } from './response-stream.js';
import { MAX_BEHIND_BYTES, StreamState } from './stream-state.js';
import type { StreamOwner } from './transport.js';

export class HeldStream implements ResponseStream {
  readonly #state: StreamState;
  readonly #cut: () => void;
  #pieces: (string | Uint8Array)[] = [];
  #heldBytes = 0;
  #isEnded = false;
  #isDenied = false;
  #released: ResponseStream | undefined;

  /** @param cut ends the connection. */
  constructor(owner: StreamOwner, cut: () => void) {
    this.#cut = cut;
    this.#state = new StreamState({
      // After a denial the owner still has to reply.
      settle: (gone) => void (this.#isDenied || owner.settle(gone)),
      report: (error) => owner.report(error),
    });
  }

  get closed(): boolean {
    return this.#isEnded || this.#state.closed;
  }

  write(chunk: string | Uint8Array, onSent?: () => void): boolean {
    if (this.closed) return false;
    if (this.#released !== undefined) return this.#released.write(chunk, onSent);
    this.#pieces.push(chunk);
    this.#heldBytes += chunk.length;
    this.#state.fallBehind();
    if (this.#heldBytes > MAX_BEHIND_BYTES + chunk.length) this.abort();
    return false;
  }

  ready(): Promise<void> {
    return this.#released === undefined ? this.#state.ready() : this.#released.ready();
  }

  async lend(): Promise<number | undefined> {
    if (this.#released === undefined) this.#state.fallBehind();
    await this.ready();
    return this.#released?.lend();
  }

  end(): void {
    if (this.closed) return;
    this.#isEnded = true;
    this.#released?.end();
  }

  abort(): void {
    if (this.#state.closed) return;
    if (this.#released === undefined) this.#cut();
    else this.#released.abort();
    this.#state.close(true);
  }

  onClose(callback: () => void): void {
    this.#state.onClose(callback);
  }

  /** Sends the reply, because it is allowed. @param open starts the reply. */
  release(open: (owner: StreamOwner) => ResponseStream): void {
    if (this.#state.closed) return;
    const stream = open({ settle: (gone) => this.#state.close(gone), report: () => undefined });
    this.#released = stream;
    const pieces = this.#pieces;
    this.#pieces = [];
    for (const piece of pieces) stream.write(piece);
    if (this.#isEnded) stream.end();
    this.#state.drained();
  }

  /** Ends the stream for its writer, because the reply is denied. What was written is dropped. */
  deny(): void {
    this.#isDenied = true;
    this.gone();
  }

  /** Ends the stream, because the client is gone. */
  gone(): void {
    this.#pieces = [];
    this.#state.close(true);
  }
}
