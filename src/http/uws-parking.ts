/**
 * Knows when a connection between requests may be taken back from uWebSockets.js: when the library has read all of the
 * requests that it has announced and not a byte more, and when every reply has left its buffers.
 */
import { countedBytes } from '../sys/net/socket-progress.js';
import { hasBody } from './framing.js';
import type { Gate } from './gate.js';
import { onNextPoll } from './next-poll.js';
import type { Peer } from './peer.js';
import type { HttpRequest } from './uws.js';

/** A connection between requests that nobody reads from. */
export interface ParkedConnection {
  readonly fd: number;
  readonly gate: Gate;
  readonly peer: Peer | undefined;
  /** Requests that were answered, without those that had more behind them. */
  readonly answered: number;
  /** Bytes of empty lines before the next request that were taken off the socket. */
  readonly skipped?: number;
  /** No request has come yet. */
  readonly isFresh?: boolean;
}

export interface Parkable {
  /**
   * Takes an idle connection back from the library, which has read all of its requests and not a byte more.
   * Undefined when it has: then it goes on as it is.
   */
  park(): ParkedConnection | undefined;
}

/** The owner parks connections. */
export interface ParkingOwner {
  /** There are so many connections that `park` is worth some work at each request. */
  isCrowded(): boolean;
  /** It has answered all that was read, and `park` may succeed until `busy`. */
  parkable(connection: Parkable): void;
  /** The next request is better looked at before the library has it. */
  takeBack(connection: Parkable): void;
  /** A further request has arrived. */
  busy(connection: Parkable): void;
}

/**
 * Before so many replies no parser reads on by itself, since what comes next may hijack and have bytes behind it. A
 * connection that goes on is of a client with many small requests, which should be fast.
 */
export const LOOKED_AT_AGAIN = 4;

/** A reply up to this size is out of the library's buffers at once, where four times as much can be written. */
export const SMALL_REPLY_BYTES = 8 * 1024;

/** Follows one connection at a time, from `begin` to `end`. */
export class UwsParking {
  readonly #connection: Parkable;
  readonly #owner: ParkingOwner;
  /** Length of all requests so far, 0 when that is not known. */
  #requestBytes = 0;
  #isParkable = false;
  #precedesUpload = false;
  #answered = 0;

  constructor(connection: Parkable, owner: ParkingOwner) {
    this.#connection = connection;
    this.#owner = owner;
  }

  /** As `ParkedConnection` has it. */
  get answered(): number {
    return this.#answered;
  }

  /** The next request is looked at before the parser gets it, if nothing of it is read by then. */
  get #isLookedAtNext(): boolean {
    return this.#precedesUpload || this.#answered < LOOKED_AT_AGAIN;
  }

  /**
   * @param requestBytes length of the next request, when it has arrived as a whole and nothing else has, and bytes are
   * counted; otherwise 0.
   */
  begin(answered: number, requestBytes: number): void {
    this.#answered = answered;
    this.#requestBytes = requestBytes;
  }

  end(): void {
    this.#requestBytes = 0;
    this.#isParkable = false;
  }

  /** Returns true when not a byte of a further request is read. */
  hasReadNoMore(fd: number): boolean {
    return countedBytes(fd) === this.#requestBytes;
  }

  /** The library has announced a request. */
  requested(req: HttpRequest, fd: number, precedesUpload: boolean): void {
    this.#precedesUpload = precedesUpload;
    if (!this.#isParkable) return;
    this.#isParkable = false;
    const mayBeParked = this.#isLookedAtNext || this.#owner.isCrowded();
    this.#requestBytes = mayBeParked && !hasBody(req) ? this.#recount(req, fd) : 0;
    this.#owner.busy(this.#connection);
  }

  /** The whole reply is with the library; what is small has left its buffers. The connection lives on. */
  replied(body: string | Uint8Array | undefined): void {
    if (this.#requestBytes === 0) return;
    if (body !== undefined && body.length > SMALL_REPLY_BYTES) {
      this.#requestBytes = 0;
      return;
    }
    this.#isParkable = true;
    this.#owner.parkable(this.#connection);
    const isLookedAt = this.#isLookedAtNext;
    this.#answered++;
    // The library has yet to leave the callback, or to send what it holds.
    if (isLookedAt) onNextPoll(() => this.#owner.takeBack(this.#connection));
  }

  /** The library keeps the connection from now on, because a reply may stay in its buffers for long. */
  keepWithLibrary(): void {
    this.#requestBytes = 0;
  }

  /**
   * Length of all requests with a further one, 0 when more or less has been read: headers are counted as every usual
   * client writes them.
   */
  #recount(req: HttpRequest, fd: number): number {
    const query = req.getQuery();
    const target = query === undefined || query === '' ? req.getUrl() : `${req.getUrl()}?${query}`;
    let length = `${req.getCaseSensitiveMethod()} ${target} HTTP/1.1\r\n\r\n`.length;
    req.forEach((name, value) => (length += name.length + value.length + ': \r\n'.length));
    const total = this.#requestBytes + length;
    return countedBytes(fd) === total ? total : 0;
  }
}
