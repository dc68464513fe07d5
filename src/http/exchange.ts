/**
 * One request and its reply, as the routes see it. Everything of the request except its body can be read until the
 * reply is complete; exactly one of `send*`, `stream`, `hijack` and `sendHijackError` answers it. An error that a
 * handler throws becomes the reply when none was begun (error-status.ts), and closes the connection when one was.
 */
import type { Readable } from 'node:stream';
import type { ArchiveSource, PieceSource } from '../ports/archives.js';
import type { Attempt } from '../ports/kept-replies.js';
import type { Query } from './query.js';
import type { ResponseStream } from './response-stream.js';
import type { ClientSocket } from './client-socket.js';

/**
 * Extra response headers, single lines each. A frozen object is rendered only once, which is worth it for constants.
 */
export type Headers = Readonly<Record<string, string>>;

export interface HijackOptions {
  /** Content type of the 101 reply. A 200 reply always says `application/vnd.docker.raw-stream`. */
  readonly contentType: string;
  /** Adds the headers that every routed response has. exec start sends them, attach does not. */
  readonly commonHeaders: boolean;
}

export interface StreamOptions {
  /** Limits the bytes that are kept for a slow client; at least the last piece is kept; absent: 256 KiB. */
  readonly unreadBytes?: number;
  /** The body follows something and has no end of its own, so the end of the daemon does not wait for it. */
  readonly isEndless?: boolean;
  /** It follows a container and ends with that, so the end of the daemon waits for it after all. */
  readonly followsContainer?: boolean;
}

export interface Exchange {
  /** Unique in the daemon's life: the `req` field of log lines. */
  readonly id: string;
  /** Method in upper case. */
  readonly method: string;
  /** Path, decoded and without the version prefix. */
  readonly path: string;
  /** The version that the client asked for (the newest when it named none), such as `1.41`. */
  readonly version: string;
  /** Returns true when the request's API version is at least this one. */
  atLeast(major: number, minor: number): boolean;
  /** Returns a parameter that the route's pattern declares, decoded. */
  param(name: string): string;
  readonly query: Query;
  /** Returns a request header by its lower-case name; undefined when absent. */
  header(name: string): string | undefined;

  /** The request has a key, and is done under this. Undefined for others, and after the reply. */
  readonly attempt: Attempt | undefined;

  /** Aborted when the client goes away before the reply is complete. */
  readonly signal: AbortSignal;
  /** Status of the reply; 499 until it is begun, and when the client left before that. */
  readonly status: number;
  /** Calls back once when the exchange is over: replied completely, or the client is gone (`signal` tells which). */
  onClose(callback: () => void): void;

  /** Length of the body in bytes: 0 without one, -1 when it is chunked. */
  readonly bodyLength: number;
  /**
   * Resolves with the body as JSON. A missing body is an error; field names are as the client wrote them.
   * @throws EngineError invalid for another content type, no body, malformed JSON or more than the route may have.
   */
  json<T>(): Promise<T>;
  /** Does the same as `json`; undefined when there is no body. */
  optionalJson<T>(): Promise<T | undefined>;
  /**
   * Returns the body as it comes, with backpressure up to the client. The stream fails with EngineError cancelled when
   * the client goes away. A body that is not read to its end is discarded after the reply.
   */
  bodyStream(): Readable;
  /** Returns the body without a stream's cost in time and memory, for readers of large ones. */
  bodyPieces(): PieceSource;
  /** Does the same as `bodyPieces`; on a route that takes uploads, the socket may be lent instead. */
  bodySource(): ArchiveSource;

  /** Sends `application/json`, with the newline at the end that clients of Go's encoder expect. */
  sendJson(status: number, value: unknown, headers?: Headers): void;
  /** Does the same as `sendJson`, for JSON text that is rendered already and ends with its newline. */
  sendRenderedJson(status: number, json: string | Uint8Array, headers?: Headers): void;
  /** Sends a reply without body. */
  sendEmpty(status: number, headers?: Headers): void;
  /** Sends a body of any type that is rendered already. */
  sendRendered(status: number, contentType: string, body: string | Uint8Array): void;
  /** Sends `text/plain; charset=utf-8`. */
  sendText(status: number, text: string, headers?: Headers): void;

  /**
   * Sends the head at once; the body is chunked. When the client goes away the stream ends and `signal` is aborted.
   */
  stream(status: number, headers?: Headers, options?: StreamOptions): ResponseStream;
  /** Notes, before the stream ends, that it tells of a failure, because its status says that all is well. */
  noteFailure(): void;

  /**
   * Takes the connection over: 101 UPGRADED when the request has an Upgrade header, otherwise a 200 whose body is the
   * rest of the connection. Only on routes declared with `hijack`. The socket is half-open in both directions, is
   * paused, and belongs to the caller, who ends and destroys it.
   * @throws EngineError forbidden when the reply is denied, cancelled when the client has gone; nothing is sent then.
   */
  hijack(options: HijackOptions): Promise<ClientSocket>;
  /**
   * Does the same as `hijack`, by 101 Switching Protocols to the protocol that the client asked for; the caller has
   * checked that.
   * @throws as `hijack`.
   */
  upgrade(protocol: 'websocket' | 'h2c', headers?: Headers): Promise<ClientSocket>;
  /** Replies to a failed attach: a raw-stream head with the error's status, the message, and the end. */
  sendHijackError(error: unknown): void;
}

export type Handler = (x: Exchange) => void | Promise<void>;
