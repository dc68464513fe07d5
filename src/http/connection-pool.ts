/** Serves accepted connections: decides who reads them, and keeps what served ended ones for the next. */
import { closeFd, onceReadable, peekSocket } from '../sys/fd.js';
import type { Gate } from './gate.js';
import { readHijackRequest, serveHijackRequest } from './hijack-request.js';
import { peerOf, type Peer } from './peer.js';
import { UwsConnection, type ConnectionServices } from './uws-connection.js';

/** Heads that hijack are far smaller. */
const PEEK_BYTES = 8192;

export class ConnectionPool {
  readonly #services: ConnectionServices;
  /** Their Apps cannot be given back to the system, so they are used again. */
  readonly #free: UwsConnection[] = [];
  readonly #peeked = Buffer.alloc(PEEK_BYTES);

  constructor(services: ConnectionServices) {
    this.#services = services;
  }

  /**
   * Serves a connected socket, whose descriptor is given away. Until its first bytes arrive it costs no more than the
   * descriptor. @param peer who is behind the socket when that is not its other end, as with TLS.
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
      const hijack = readHijackRequest(this.#peeked.subarray(0, count), this.#services.router, gate, () => peer ?? peerOf(fd));
      if (count === 0) closeFd(fd);
      else if (hijack === undefined) this.#adopt(fd, gate, peer);
      else serveHijackRequest(this.#services, gate, fd, peer ?? peerOf(fd), hijack);
    } catch (err) {
      this.#services.logger.warn({ err }, 'a connection could not be served');
      closeFd(fd);
    }
    return true;
  }

  #adopt(fd: number, gate: Gate, peer: Peer | undefined): void {
    const connection = this.#free.pop() ?? new UwsConnection(this.#services, (ended) => this.#free.push(ended));
    connection.adopt(fd, gate, peer);
  }
}
