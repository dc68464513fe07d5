/**
 * A client that costs next to nothing: it waits in system calls instead of an event loop, and keeps in memory what it
 * sends. So what is measured with it is the engine.
 */
import { closeSync, readSync, writeSync } from 'node:fs';
import { makeBlocking } from '../src/sys/files/fd.js';
import { connectUnix } from '../src/sys/net/unix-stream.js';
import type { Engine } from '../test/support/engine.js';

const HEAD_END = '\r\n\r\n';
const ROOM_BYTES = 256 * 1024;

export class BlockingConnection {
  readonly #fd: number;

  constructor(engine: Engine) {
    this.#fd = connectUnix(engine.socketPath);
    makeBlocking(this.#fd);
  }

  close(): void {
    closeSync(this.#fd);
  }

  write(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) at += writeSync(this.#fd, bytes, at);
  }

  /** Writes the head of a request. @param headers Lines of the form `Name: value`. */
  ask(method: string, path: string, ...headers: string[]): void {
    this.write(Buffer.from([`${method} ${path} HTTP/1.1`, 'Host: localhost', ...headers, '', ''].join('\r\n')));
  }

  /** Returns the bytes that have come, as many as there is room for; none at the end. */
  read(into: Buffer): Buffer {
    return into.subarray(0, readSync(this.#fd, into));
  }

  /** Reads a reply without a body. @throws Error unless the status is one of these. */
  readEmpty(...statuses: number[]): void {
    const room = Buffer.alloc(4096);
    let head = '';
    while (!head.endsWith(HEAD_END)) {
      const piece = this.read(room);
      head += piece.toString('latin1');
      if (piece.length === 0) throw new Error(`the connection ended after ${JSON.stringify(head)}`);
    }
    checkStatus(head, statuses);
  }

  /** Returns what comes until the engine ends the connection. */
  readToEnd(): Buffer {
    const pieces: Buffer[] = [];
    for (;;) {
      const piece = this.read(Buffer.allocUnsafe(ROOM_BYTES / 4));
      if (piece.length === 0) return Buffer.concat(pieces);
      pieces.push(piece);
    }
  }

  /** Counts what comes until the engine ends the connection, and keeps its begin and its end. */
  countToEnd(): { readonly bytes: number; readonly begin: string; readonly end: string } {
    const room = Buffer.alloc(ROOM_BYTES);
    let [bytes, begin, end] = [0, '', ''];
    for (;;) {
      const piece = this.read(room);
      if (piece.length === 0) return { bytes, begin, end };
      bytes += piece.length;
      if (begin.length < 1024) begin += piece.toString('latin1', 0, 1024);
      end = (end + piece.toString('latin1', Math.max(0, piece.length - 16))).slice(-16);
    }
  }
}

export function checkStatus(reply: string, statuses: readonly number[]): void {
  const status = Number(/^HTTP\/1\.1 (\d+)/.exec(reply)?.[1]);
  if (!statuses.includes(status)) throw new Error(`the engine replied ${JSON.stringify(reply.slice(0, 1000))}`);
}
