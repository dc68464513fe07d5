/**
 * Ends TLS for clients that are accepted elsewhere: each one that is let in gets a socket pair, over which its plain
 * bytes go to the server and back.
 */
import { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { createServer, type DetailedPeerCertificate, type SecureContextOptions, type TLSSocket } from 'node:tls';
import { messageOf } from '../../errors/engine-error.js';
import type { TlsPeer, TlsRules } from '../../ports/tls-terminator.js';
import { closeFd, hangUp } from '../files/fd.js';
import { SharedFds } from '../files/shared-fds.js';
import { highestForClients } from '../process/limits.js';
import { PipeEnd } from './pipe-end.js';
import { socketPair } from './socket-pair.js';
import { socketPeer } from './socket-peer.js';

/** Time for a client to finish its handshake. */
const HANDSHAKE_MS = 10_000;
/** Handshakes at one time; a further one ends the oldest, since those of honest clients take milliseconds. */
const MAX_HANDSHAKES = 1000;
/** Time for a client to take the last bytes once nobody serves it any more. */
const LINGER_MS = 30_000;
/** So often it is looked whether clients have been sent all. */
const LOOK_MS = 2;
const FOLLOW_MS = 1000;
const GONE = 'the client has gone';
const TOO_MANY = `${MAX_HANDSHAKES} others began a handshake after it`;

/** The end of a handshake: each connection that is accepted has one of these. */
export type TlsOutcome =
  /** The client is let in; the descriptor is that of the server's end, and is given away. */
  | { readonly type: 'open'; readonly fd: number; readonly peer: TlsPeer }
  | { readonly type: 'refused'; readonly address: string; readonly reason: string }
  | { readonly type: 'failed'; readonly reason: string };

export interface TlsEvents {
  onOutcome(outcome: TlsOutcome): void;
  /** The client of a connection that was let in is gone, or has been sent all that it gets. */
  onClosed(): void;
}

/** Our end of the pair of sockets that leads to the server. */
interface Server {
  readonly inner: PipeEnd;
  readonly fd: number;
}

interface Handshake {
  readonly fd: number;
  readonly address: string;
}

export class TlsTermination {
  readonly #events: TlsEvents;
  readonly #verifies: boolean;
  readonly #server: ReturnType<typeof createServer>;
  /** Sockets during their handshake, the oldest first, by the addresses of both ends. */
  readonly #shaking = new Map<string, Handshake>();
  /** Connections that were let in. */
  readonly #open = new Map<TLSSocket, Server>();

  /**
   * @param held notes the descriptors that have no owner when this thread fails.
   * @param highest a client whose descriptors would have a higher number is not let in.
   */
  constructor(
    { context, verifies }: TlsRules,
    events: TlsEvents,
    private readonly held = new SharedFds(),
    private readonly highest = highestForClients(),
  ) {
    this.#events = events;
    this.#verifies = verifies;
    this.#server = createServer({
      ...context,
      requestCert: verifies,
      rejectUnauthorized: verifies,
      ALPNProtocols: ['http/1.1'],
      handshakeTimeout: HANDSHAKE_MS,
    });
    this.#server.on('secureConnection', (outer) => this.#letIn(outer));
    this.#server.on('tlsClientError', (error, outer) => this.#refuse(error, outer));
  }

  /** Takes over a connected socket; the descriptor is given away. */
  accept(fd: number): void {
    this.held.remove(fd);
    const socket = new Socket({ fd, readable: true, writable: true });
    socket.on('error', () => undefined);
    const address = addressOf(socket);
    if (address === '') {
      socket.destroy();
      return this.#events.onOutcome({ type: 'refused', address, reason: GONE });
    }
    const key = keyOf(socket);
    this.#shaking.set(key, { fd, address });
    socket.once('close', () => this.#settle(key, { type: 'refused', address, reason: GONE }));
    this.#server.emit('connection', socket);
    const [oldest] = this.#shaking.size > MAX_HANDSHAKES ? this.#shaking : [];
    if (oldest) this.#endHandshake(...oldest);
  }

  /** Shows and trusts these from now on. */
  use(context: SecureContextOptions): void {
    this.#server.setSecureContext(context);
  }

  /** Waits until clients have been sent what the server has written so far, up to a limit. */
  async flush(limitMs: number): Promise<void> {
    const giveUpAt = performance.now() + limitMs;
    const isBehind = ([outer, { inner }]: readonly [TLSSocket, Server]): boolean =>
      outer.writableLength > 0 || inner.hasUnread;
    while (performance.now() < giveUpAt && [...this.#open].some(isBehind)) await sleep(LOOK_MS);
  }

  /** Ends all connections at once. A thread that is ended while it waits for their bytes takes the process with it. */
  close(): void {
    for (const outer of this.#open.keys()) {
      this.#shut(outer);
      outer.destroy();
    }
  }

  #letIn(outer: TLSSocket): void {
    outer.on('error', () => undefined);
    // Before, the end of what it sends was the end of the handshake.
    outer.allowHalfOpen = true;
    // The end of one whose client has gone was told.
    if (!this.#shaking.delete(keyOf(outer))) return void outer.destroy();
    try {
      const peer = tlsPeer(outer, this.#verifies);
      const [ours, theirs] = this.#pair();
      this.held.add(ours);
      this.held.add(theirs);
      const inner = this.#splice(outer, ours);
      this.#open.set(outer, { inner, fd: ours });
      outer.once('close', () => {
        this.#shut(outer);
        this.#events.onClosed();
      });
      this.#events.onOutcome({ type: 'open', fd: theirs, peer });
    } catch (error) {
      this.#events.onOutcome({ type: 'failed', reason: messageOf(error) });
      outer.destroy();
    }
  }

  /** A connection was accepted when there was room for it alone, and a thousand may be let in at one time. */
  #pair(): readonly [number, number] {
    const ends = socketPair();
    if (Math.max(...ends) <= this.highest) return ends;
    for (const end of ends) closeFd(end);
    throw new Error('nearly all file descriptors are in use');
  }

  /** Lets go of the server's side of a connection. */
  #shut(outer: TLSSocket): void {
    const server = this.#open.get(outer);
    if (!this.#open.delete(outer) || !server) return;
    this.held.remove(server.fd);
    server.inner.close();
  }

  /** Looks from now on whether the server, which sends no more, still wants what the client sends. */
  #follow(outer: TLSSocket, inner: PipeEnd): void {
    const timer = setInterval(() => {
      if (!inner.isDeaf) return;
      clearInterval(timer);
      leave(outer);
    }, FOLLOW_MS).unref();
    outer.once('close', () => clearInterval(timer));
  }

  #refuse(error: Error, outer: TLSSocket): void {
    const reason = String(outer.authorizationError ?? error.message);
    this.#settle(keyOf(outer), { type: 'refused', address: addressOf(outer), reason });
    outer.destroy();
  }

  /** Node does not give the encrypted socket before its handshake is done, and the one below it cannot end it. */
  #endHandshake(key: string, { fd, address }: Handshake): void {
    this.#settle(key, { type: 'refused', address, reason: TOO_MANY });
    // Node may have closed the descriptor, and the number may be another's.
    if (isPeer(fd, address)) hangUp(fd);
  }

  /** Says what became of a handshake. One whose client has gone has no key any more; its socket's end is heard. */
  #settle(key: string, outcome: TlsOutcome): void {
    if (this.#shaking.delete(key)) this.#events.onOutcome(outcome);
  }

  /** Passes on bytes, ends and backpressure in both directions, until either side is gone. */
  #splice(outer: TLSSocket, fd: number): PipeEnd {
    const inner = new PipeEnd(fd, {
      onData: (bytes) => {
        if (!outer.write(bytes)) inner.pause();
      },
      onEnd: (isGone) => {
        outer.end();
        if (isGone) leave(outer);
        else this.#follow(outer, inner);
      },
      onDrain: () => outer.resume(),
    });
    outer.on('drain', () => inner.resume());
    outer.on('data', (bytes: Buffer) => {
      if (!inner.write(bytes)) outer.pause();
    });
    outer.once('end', () => inner.finish());
    return inner;
  }
}

/** Ends a connection that nobody serves any more when the client has taken all, or takes nothing for some time. */
function leave(outer: TLSSocket): void {
  if (outer.writableFinished) return void outer.destroy();
  // Nobody wants what the client sends, which must not keep the connection.
  outer.pause();
  outer.once('finish', () => outer.destroy());
  outer.setTimeout(LINGER_MS, () => outer.destroy());
}

/** Returns the peer of a TLS connection. @throws Error when the client has gone already. */
function tlsPeer(socket: TLSSocket, isVerified: boolean): TlsPeer {
  const address = addressOf(socket);
  if (address === '') throw new Error(GONE);
  if (!isVerified) return { kind: 'tls', address, commonName: undefined, certificates: [] };
  const chain: DetailedPeerCertificate[] = [];
  for (let next = socket.getPeerCertificate(true); !chain.includes(next); next = next.issuerCertificate) {
    chain.push(next);
    // A root certificate names itself as its issuer. An authority that is trusted without being a root names nobody.
    if ((next.issuerCertificate as DetailedPeerCertificate | undefined) === undefined) break;
  }
  // A subject may have several names; Go takes the last one, and authorization plugins know its reading.
  const names = [chain[0]?.subject.CN ?? []].flat() as readonly string[];
  return { kind: 'tls', address, commonName: names.at(-1), certificates: chain.map(({ raw }) => pem(raw)) };
}

/** Returns `192.0.2.1:40000` or `[2001:db8::1]:40000`; '' when the client has gone. */
function addressOf({ remoteAddress, remotePort }: Socket): string {
  if (remoteAddress === undefined) return '';
  const host = remoteAddress.replace(/^::ffff:(?=[\d.]+$)/, '');
  return `${host.includes(':') ? `[${host}]` : host}:${remotePort}`;
}

function isPeer(fd: number, address: string): boolean {
  try {
    const peer = socketPeer(fd);
    return peer.kind === 'tcp' && peer.address === address;
  } catch {
    return false;
  }
}

function keyOf(socket: Socket): string {
  return `${addressOf(socket)} ${socket.localAddress}:${socket.localPort}`;
}

function pem(der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}
