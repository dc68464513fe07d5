/**
 * Live output of one process, fanned out to attached clients. Attach loses nothing: when a client is too many bytes
 * behind, `write` returns false, and the process's output is not read until the client has caught up or left. So memory
 * per client is bounded. Readers of the log never slow anybody.
 */
import type { Writable } from 'node:stream';
import type { StreamName } from '../../ports/logs.js';
import { frameHeader } from './stdcopy.js';

/** A client that is further behind than this stops the reading. */
const QUEUE_LIMIT_BYTES = 1 << 20;
/** Largest payload of a frame; the known clients were built with this size. */
const FRAME_LIMIT_BYTES = 32 << 10;

interface Subscriber {
  readonly socket: Writable;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly multiplexed: boolean;
}

export class AttachHub {
  readonly #subscribers = new Set<Subscriber>();
  #waiting: (() => void) | undefined;

  /** Number of attached clients. */
  get size(): number {
    return this.#subscribers.size;
  }

  /**
   * Attaches a client from now on. Returns a function that detaches it; a client whose socket closes is detached by
   * itself.
   */
  subscribe(
    wants: { readonly stdout: boolean; readonly stderr: boolean; readonly multiplexed: boolean },
    socket: Writable,
  ): () => void {
    const subscriber: Subscriber = { socket, ...wants };
    this.#subscribers.add(subscriber);
    const onDrain = (): void => this.#settle();
    const leave = (): void => {
      socket.off('drain', onDrain);
      socket.off('close', leave);
      this.#subscribers.delete(subscriber);
      this.#settle();
    };
    socket.on('drain', onDrain);
    socket.once('close', leave);
    return leave;
  }

  /** Passes output on. False: a client is behind; do not write before `onceDrained` calls back. */
  write(stream: StreamName, chunk: Buffer): boolean {
    let ready = true;
    for (const { socket, multiplexed, [stream]: wanted } of this.#subscribers) {
      if (!wanted || socket.destroyed || socket.writableEnded) continue;
      if (multiplexed) writeFrames(socket, stream, chunk);
      else socket.write(chunk);
      if (socket.writableLength > QUEUE_LIMIT_BYTES) ready = false;
    }
    return ready;
  }

  /** Calls back once when no client is behind any more. */
  onceDrained(callback: () => void): void {
    const before = this.#waiting;
    this.#waiting = before
      ? () => {
          before();
          callback();
        }
      : callback;
    this.#settle();
  }

  /** Ends the output: every client gets what is queued for it, then the end. */
  end(): void {
    this.part()();
  }

  /**
   * Parts with the clients that are attached now, so they get no more output. Returns a function that ends their
   * streams, because the caller may have something to settle first. Clients that come meanwhile are not among them.
   */
  part(): () => void {
    const parted = [...this.#subscribers];
    this.#subscribers.clear();
    this.#settle();
    return () => {
      for (const { socket } of parted) socket.end();
    };
  }

  #settle(): void {
    if (!this.#waiting) return;
    for (const { socket } of this.#subscribers)
      if (!socket.destroyed && socket.writableLength > QUEUE_LIMIT_BYTES) return;
    const callback = this.#waiting;
    this.#waiting = undefined;
    callback();
  }
}

function writeFrames(socket: Writable, stream: StreamName, chunk: Buffer): void {
  socket.cork();
  for (let offset = 0; offset < chunk.length; offset += FRAME_LIMIT_BYTES) {
    const payload = chunk.subarray(offset, offset + FRAME_LIMIT_BYTES);
    socket.write(frameHeader(stream, payload.length));
    socket.write(payload);
  }
  socket.uncork();
}
