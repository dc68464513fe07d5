/** Serves accepted connections: decides who reads them, and keeps what served ended ones for the next. */
import { closeFd, onceReadable, peekSocket } from '../sys/files/fd.js';
import { startCounting, unsentBytes } from '../sys/net/socket-progress.js';
import { readDirectRequest, type DirectRequest } from './direct-request.js';
import { messageBody } from './error-status.js';
import { statesOneFraming, UNKNOWN_FRAMING, UNKNOWN_FRAMING_MESSAGE } from './framing.js';
import type { Gate } from './gate.js';
import { serveChunked } from './chunked-request.js';
import { serveHijackRequest } from './hijack-request.js';
import { peerOf, type Peer } from './peer.js';
import { RawSocket, RawTransport } from './raw-reply.js';
import { serveUpload } from './upload-request.js';
import { UwsConnection, type ConnectionOwner, type ConnectionServices } from './uws-connection.js';

/** The heads that are looked for are far smaller. */
const PEEK_BYTES = 8192;

/** Apps are made freely up to this number (of 27 KB each); beyond it idle connections give theirs up when they can. */
const MANY_APPS = 1024;

const HEAD_END = '\r\n\r\n';

export class ConnectionPool {
  readonly #services: ConnectionServices;
  /** Their Apps cannot be given back to the system, so they are used again. */
  readonly #free: UwsConnection[] = [];
  /** Between requests, the longest idle first, and as far as is known without anything in the library's buffers. */
  readonly #parkable = new Set<UwsConnection>();
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
    if (this.#serveReceived(fd, gate, peer)) return;
    const waiting = {
      idle: true,
      close: () => {
        readable.cancel();
        gate.connections.delete(waiting);
        closeFd(fd);
      },
    };
    gate.connections.add(waiting);
    const readable = onceReadable(fd, () => {
      gate.connections.delete(waiting);
      this.serve(fd, gate, peer);
    });
  }

  /** False when nothing has arrived. A connection that cannot be served ends; the daemon does not. */
  #serveReceived(fd: number, gate: Gate, peer: Peer | undefined): boolean {
    try {
      const count = peekSocket(fd, this.#peeked);
      if (count === undefined) return false;
      const received = this.#peeked.subarray(0, count);
      if (!this.#isFramed(received)) return this.#refuseFraming(fd, peer);
      const direct = readDirectRequest(received, this.#services.router, gate, () => peer ?? peerOf(fd));
      if (count === 0) closeFd(fd);
      else if (direct === undefined) this.#app().adopt(fd, gate, peer, this.#countRequest(fd, count));
      else serverOf(direct)(this.#services, gate, fd, peer ?? peerOf(fd), direct);
    } catch (err) {
      this.#services.logger.warn({ err }, 'a connection could not be served');
      closeFd(fd);
    }
    return true;
  }

  /** False for a bad head. The library refuses it too, but bytes behind the head would take the place of its reply. */
  #isFramed(received: Buffer): boolean {
    const end = received.indexOf(HEAD_END);
    return end < 0 || statesOneFraming(received.toString('latin1', 0, end));
  }

  #refuseFraming(fd: number, peer: Peer | undefined): true {
    new RawTransport(new RawSocket(fd), peer ?? peerOf(fd)).reply(
      UNKNOWN_FRAMING,
      messageBody(UNKNOWN_FRAMING_MESSAGE),
    );
    return true;
  }

  /**
   * Length of what has been received when that is exactly one request without a body, and when what the library reads
   * is counted from now on; otherwise 0.
   */
  #countRequest(fd: number, count: number): number {
    const isOneHead =
      count < PEEK_BYTES && this.#peeked.subarray(0, count).indexOf(HEAD_END) === count - HEAD_END.length;
    return isOneHead && unsentBytes(fd) === 0 && startCounting(fd) ? count : 0;
  }

  /** Looks at what an idle connection brings next before anybody reads it, if that is still possible. */
  #takeBack(connection: UwsConnection): void {
    this.#parkable.delete(connection);
    const parked = connection.park();
    if (parked !== undefined) this.serve(parked.fd, parked.gate, parked.peer);
  }

  /** One to serve a connection with: an unused one, one that an idle connection can do without, or a new one. */
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

function serverOf({ found: { route } }: DirectRequest): typeof serveChunked {
  if (route.hijack !== undefined) return serveHijackRequest;
  return route.upload === 'takes' ? serveUpload : serveChunked;
}
