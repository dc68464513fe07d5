/** Serves accepted connections: it decides who reads each of them, and keeps the Apps of ended ones for the next. */
import { closeFd, onceReadable, peekSocket, takeFromSocket } from '../sys/files/fd.js';
import { watchArrivals } from '../sys/net/arrivals.js';
import { startCounting, untakenBytes, writableBytes } from '../sys/net/socket-progress.js';
import { readDirectRequest, type DirectRequest } from './direct-request.js';
import { messageBody } from './error-status.js';
import { MALFORMED_HEAD_MESSAGE, statedBody, UNKNOWN_FRAMING, UNKNOWN_FRAMING_MESSAGE } from './framing.js';
import type { Gate, LiveConnection } from './gate.js';
import { serveChunked } from './chunked-request.js';
import { emptyLineBytes, HEAD_END, hasBareReturn, isOriginForm, mayBecomeHead } from './header-lines.js';
import { serveHijackRequest } from './hijack-request.js';
import { onNextPoll } from './next-poll.js';
import { readOldRequest, serveOld } from './old-request.js';
import { peerOf, type Peer } from './peer.js';
import { RawSocket, RawTransport } from './raw-reply.js';
import { readSingleRequest, serveSingle, type SingleRequest } from './single-request.js';
import { serveUpload } from './upload-request.js';
import { UwsConnection, type ConnectionOwner, type ConnectionServices } from './uws-connection.js';
import { LOOKED_AT_AGAIN, SMALL_REPLY_BYTES, type Parkable, type ParkedConnection } from './uws-parking.js';

/** The heads that are looked for are far smaller than this. */
const PEEK_BYTES = 8192;

/** A client that sends more of empty lines before a request sends no request. */
const MOST_SKIPPED_BYTES = 1024;

/** The pool waits this long for the rest of a request; then the parser goes on with it, at the client's pace. */
const WHOLE_MS = 5_000;

/** Apps are made freely up to this number (of 27 KB each); beyond it idle connections give theirs up when they can. */
const MANY_APPS = 1024;

export class ConnectionPool {
  readonly #services: ConnectionServices;
  /** Unused Apps; they are used again, because they cannot be given back to the system. */
  readonly #free: UwsConnection[] = [];
  /**
   * Connections between requests, the longest idle first. As far as is known, the library's buffers hold nothing of
   * them.
   */
  readonly #parkable = new Set<Parkable>();
  #apps = 0;
  readonly #owner: ConnectionOwner;
  readonly #peeked = Buffer.alloc(PEEK_BYTES);

  constructor(services: ConnectionServices) {
    this.#services = services;
    this.#owner = {
      isCrowded: () => this.#apps >= MANY_APPS && this.#free.length === 0,
      parkable: (connection) => this.#parkable.add(connection),
      busy: (connection) => this.#parkable.delete(connection),
      takeBack: (connection) => this.#takeBack(connection),
      ended: (connection) => {
        this.#parkable.delete(connection);
        this.#free.push(connection);
      },
    };
  }

  /**
   * Serves a connected socket, whose descriptor is given away. Until its first bytes arrive it costs little more than
   * the descriptor. @param peer who is behind the socket when that is not its other end, as with TLS.
   */
  serve(fd: number, gate: Gate, peer?: Peer): void {
    this.#serve({ fd, gate, peer, answered: 0, isFresh: true });
  }

  /**
   * Looks at connections between requests now, instead of a moment after their last reply: from then on they can be
   * passed on, or have a request that is being read.
   */
  parkIdle(): void {
    for (const connection of this.#parkable) this.#takeBack(connection);
  }

  #serve(connection: ParkedConnection): void {
    const { fd, gate, isFresh = false } = connection;
    if (gate.closing && !isFresh) return closeFd(fd);
    try {
      const serve = this.#judge(connection, true);
      if (serve === 'nothing') this.#awaitRequest(connection);
      else if (serve === 'part') this.#awaitWhole(connection);
      else serve();
    } catch (error) {
      this.#giveUp(fd, error);
    }
  }

  /** Waits for the first byte of a request. */
  #awaitRequest(connection: ParkedConnection): void {
    const { fd, gate } = connection;
    const waiting = {
      idle: true,
      close: () => {
        readable.cancel();
        leave(gate, waiting);
        closeFd(fd);
      },
      ...(connection.peer === undefined && { descriptor: fd }),
    };
    enter(gate, waiting, connection);
    const readable = onceReadable(fd, () => {
      this.#serve(connection);
      leave(gate, waiting);
    });
  }

  /** Waits for the rest of a small request, so that the bytes behind it are known before anybody takes it. */
  #awaitWhole(connection: ParkedConnection): void {
    const { fd, gate } = connection;
    const stop = (): void => {
      arrivals.close();
      clearTimeout(timer);
    };
    const look = (isLast: boolean): void => {
      try {
        const serve = this.#judge(connection, !isLast);
        if (typeof serve === 'string') return;
        stop();
        serve();
      } catch (error) {
        stop();
        this.#giveUp(fd, error);
      }
      leave(gate, waiting);
    };
    const waiting = {
      idle: true,
      close: () => {
        stop();
        leave(gate, waiting);
        closeFd(fd);
      },
      // Its bytes were only looked at.
      ...(connection.peer === undefined && { descriptor: fd }),
    };
    const arrivals = watchArrivals(fd, look);
    const timer = setTimeout(() => look(true), WHOLE_MS);
    enter(gate, waiting, connection);
  }

  /** Ends a connection that cannot be served; the daemon goes on. */
  #giveUp(fd: number, err: unknown): void {
    this.#services.logger.warn({ err }, 'a connection could not be served');
    closeFd(fd);
  }

  /**
   * Looks at what a socket has received and says who serves it: `nothing` when no byte is there, `part` when more of
   * the request must arrive first.
   * @param mayWait false when the pool does not wait for more any longer.
   */
  #judge(connection: ParkedConnection, mayWait: boolean): 'nothing' | 'part' | (() => void) {
    const { fd, gate } = connection;
    const count = peekSocket(fd, this.#peeked);
    if (count === undefined) return 'nothing';
    if (count === 0) return () => closeFd(fd);
    const parse = (): void => this.#app().adopt(connection, 0);
    const received = this.#peeked.toString('latin1', 0, count);
    const { skipped = 0 } = connection;
    const empty = emptyLineBytes(received);
    if (empty > 0 && skipped <= MOST_SKIPPED_BYTES) return () => this.#skip(connection, empty);
    const end = received.indexOf(HEAD_END);
    // The library would wait for another end of the line until its limit.
    if (empty > 0 || (received === '\r' && !mayWait) || hasBareReturn(end < 0 ? received : received.slice(0, end)))
      return () => this.#refuse(connection, MALFORMED_HEAD_MESSAGE);
    if (end < 0) return mayWait && count < PEEK_BYTES && mayBecomeHead(received) ? 'part' : parse;
    const head = received.slice(0, end);
    const body = statedBody(head);
    // The library refuses it too, but bytes behind the head would take the place of its reply.
    if (body === 'ambiguous') return () => this.#refuse(connection, UNKNOWN_FRAMING_MESSAGE);
    const { router } = this.#services;
    const direct = readDirectRequest(head, body, router, gate, () => connection.peer ?? peerOf(fd));
    if (direct !== undefined)
      return () => serverOf(direct)(this.#services, gate, fd, connection.peer ?? peerOf(fd), direct);
    const old = readOldRequest(head, body, router, gate);
    if (old !== undefined) return () => serveOld(this.#services, gate, fd, connection.peer ?? peerOf(fd), old);
    // The library refuses it too, but bytes behind the head would take the place of its reply.
    if (!isOriginForm(head) && !head.startsWith('OPTIONS * '))
      return () => this.#refuse(connection, MALFORMED_HEAD_MESSAGE);
    if (body === 'open') return parse;
    const length = end + HEAD_END.length + body;
    if (count < length && length <= PEEK_BYTES && mayWait) return 'part';
    return this.#judgeArrived(connection, head, body, count < PEEK_BYTES ? count : untakenBytes(fd));
  }

  /** As `#judge`, for a request that need not be waited for. @param count so many bytes have arrived. */
  #judgeArrived(connection: ParkedConnection, head: string, bodyBytes: number, count: number): () => void {
    const { fd, gate, answered } = connection;
    const length = head.length + HEAD_END.length + bodyBytes;
    const parse = (): void => this.#app().adopt(connection, count === length && this.#isCounted(fd) ? count : 0);
    if (count < length || (count === length && answered >= LOOKED_AT_AGAIN)) return parse;
    const single = readSingleRequest(head, bodyBytes, this.#services.router, gate);
    return single === undefined ? parse : () => this.#serveSingle(connection, single, count > length);
  }

  #serveSingle({ fd, gate, peer, answered }: ParkedConnection, request: SingleRequest, isFollowed: boolean): void {
    serveSingle(this.#services, { fd, gate, peer, isFollowed }, request, (again) => {
      const next = { fd: again, gate, peer, answered: isFollowed ? answered : answered + 1 };
      // Other connections get their turn between the requests, however many a client has sent at once.
      if (isFollowed) onNextPoll(() => this.#serve(next));
      else this.#goOn(next);
    });
  }

  /** Waits for a further request, which has probably not arrived. */
  #goOn(connection: ParkedConnection): void {
    try {
      if (connection.gate.closing) closeFd(connection.fd);
      else this.#awaitRequest(connection);
    } catch (error) {
      this.#giveUp(connection.fd, error);
    }
  }

  /** Takes bytes that mean nothing off the socket; others get their turn before more is looked at. */
  #skip(connection: ParkedConnection, bytes: number): void {
    takeFromSocket(connection.fd, this.#peeked, bytes);
    const { skipped = 0 } = connection;
    onNextPoll(() => this.#serve({ ...connection, skipped: skipped + bytes }));
  }

  /** Returns true when what the library reads is counted from now on, and a small reply leaves its buffers at once. */
  #isCounted(fd: number): boolean {
    return writableBytes(fd) >= 4 * SMALL_REPLY_BYTES && startCounting(fd);
  }

  #refuse({ fd, peer = peerOf(fd) }: ParkedConnection, message: string): void {
    new RawTransport(new RawSocket(fd), peer).reply(UNKNOWN_FRAMING, messageBody(message));
  }

  /** Looks at what an idle connection brings next before anybody reads it, if that is still possible. */
  #takeBack(connection: Parkable): void {
    this.#parkable.delete(connection);
    const parked = connection.park();
    if (parked !== undefined) this.#serve(parked);
  }

  /**
   * Returns an App to serve a connection with: an unused one, one that an idle connection can do without, or a new one.
   */
  #app(): UwsConnection {
    const unused = this.#free.pop();
    if (unused !== undefined) return unused;
    if (this.#owner.isCrowded()) {
      for (const connection of this.#parkable) {
        this.#takeBack(connection);
        const freed = this.#free.pop();
        if (freed !== undefined) return freed;
      }
    }
    this.#apps++;
    return new UwsConnection(this.#services, this.#owner);
  }
}

function enter(gate: Gate, waiting: LiveConnection, { isFresh }: ParkedConnection): void {
  gate.connections.add(waiting);
  if (isFresh === true) gate.expect(waiting);
}

/** Call it when whoever serves the connection next has entered, so that the gate never seems idle in between. */
function leave(gate: Gate, waiting: LiveConnection): void {
  gate.connections.delete(waiting);
  gate.expectNoMore(waiting);
}

function serverOf({ found: { route } }: DirectRequest): typeof serveChunked {
  if (route.hijack !== undefined) return serveHijackRequest;
  return route.upload === 'takes' ? serveUpload : serveChunked;
}
