/**
 * A transport carries a reply: it is a connection that uWebSockets.js serves, or a raw socket that was taken back from
 * it.
 */
import type { SocketSource } from '../ports/archives.js';
import type { Peer } from './peer.js';
import type { ClientSocket } from './client-socket.js';
import type { BodySource } from './request-body.js';
import type { ReplyHead } from './response-head.js';
import type { ResponseStream } from './response-stream.js';

/** A transport tells its owner what becomes of a stream. */
export interface StreamOwner {
  /** The stream is over; `gone` when the client left before its end. Called once. */
  settle(gone: boolean): void;
  /** A callback of the stream's user threw: a bug that must not reach the event loop. */
  report(error: unknown): void;
}

/** The methods are called at most once for each exchange, `abort` at any time before it is over. */
export interface Transport extends BodySource {
  /** The peer is the other end of the connection. */
  readonly peer: Peer;
  /** The body, when it is still in the socket and the transport leaves it there. */
  readonly upload?: SocketSource;
  /** Sends a complete reply. `body` undefined: none, with `Content-Length: 0` where a length belongs. */
  reply(head: ReplyHead, body: string | Uint8Array | undefined): void;
  /**
   * Starts a chunked reply. @param bodyPending true while the request's body is still arriving. @param unreadBytes as
   * `Exchange.stream`; those that send from a buffer of their own leave it at that.
   */
  stream(head: ReplyHead, owner: StreamOwner, bodyPending: boolean, unreadBytes?: number): ResponseStream;
  /** Returns the socket itself; only raw transports have it. @throws Error for others. */
  takeSocket(): ClientSocket;
  /** Cuts the connection. */
  abort(): void;
}
