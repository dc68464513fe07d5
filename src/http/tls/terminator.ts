/**
 * Ends TLS in front of the HTTP library, because the library's own TLS lets clients without a certificate in. The plain
 * bytes go over a socket pair, so that everything behind it is the same as for a plain connection.
 */
import { Socket } from 'node:net';
import { createServer, type DetailedPeerCertificate, type TLSSocket } from 'node:tls';
import type { Logger } from '../../ports/logger.js';
import { PipeEnd } from '../../sys/net/pipe-end.js';
import { socketPair } from '../../sys/net/socket-pair.js';
import type { TlsPeer } from '../peer.js';
import type { TlsIdentity } from './identity.js';

/** Time for a client to finish its handshake. */
const HANDSHAKE_MS = 10_000;
/** Handshakes at one time; a further one ends the oldest, since those of honest clients take milliseconds. */
const MAX_HANDSHAKES = 1000;
/** Time for a client to take the last bytes once nobody serves it any more. */
const LINGER_MS = 30_000;

export interface TlsTerminator {
  /** Takes over a connected socket; the descriptor is given away. */
  accept(fd: number): void;
  /** Waits until no handshake is under way, up to a limit. */
  idle(limitMs: number): Promise<void>;
  /**
   * Lets handshakes that are under way lead to nothing. Connections that have finished theirs are ended by their
   * server.
   */
  close(): void;
}

/** @param serve gets the inner end of each connection whose client is let in. */
export function createTlsTerminator(
  identity: TlsIdentity,
  logger: Logger,
  serve: (fd: number, peer: TlsPeer) => void,
): TlsTerminator {
  let isClosed = false;
  /**
   * Sockets during their handshake, by the client's address: Node gives the encrypted socket, not the one that it was
   * made of.
   */
  const shaking = new Map<string, Socket>();
  let onIdle: (() => void) | undefined;
  const isShaken = (address: string): void => {
    shaking.delete(address);
    if (shaking.size === 0) onIdle?.();
  };
  const server = createServer({
    ...identity.context,
    requestCert: identity.verifies,
    rejectUnauthorized: identity.verifies,
    ALPNProtocols: ['http/1.1'],
    handshakeTimeout: HANDSHAKE_MS,
    allowHalfOpen: true,
  });
  const stopFollowing = identity.follow((context) => server.setSecureContext(context));
  server.on('secureConnection', (outer) => {
    outer.on('error', () => undefined);
    try {
      if (isClosed) throw new Error('the listener is closed');
      const peer = tlsPeer(outer, identity.verifies);
      const [ours, theirs] = socketPair();
      splice(outer, ours);
      serve(theirs, peer);
    } catch (err) {
      logger.warn({ err }, 'a connection could not be served');
      outer.destroy();
    }
    isShaken(addressOf(outer));
  });
  server.on('tlsClientError', (error, outer) => {
    // Anybody who reaches the port can cause this, so it is worth no more than a line at the debug level.
    logger.debug(
      { address: outer.remoteAddress, reason: String(outer.authorizationError ?? error.message) },
      'TLS handshake refused',
    );
    outer.destroy();
  });
  return {
    accept: (fd) => {
      const socket = new Socket({ fd, allowHalfOpen: true, readable: true, writable: true });
      socket.on('error', () => undefined);
      const address = addressOf(socket);
      shaking.set(address, socket);
      socket.once('close', () => {
        if (shaking.get(address) === socket) isShaken(address);
      });
      server.emit('connection', socket);
      const [oldest] = shaking.size > MAX_HANDSHAKES ? shaking.values() : [];
      oldest?.destroy();
    },
    idle: async (limitMs) => {
      if (shaking.size === 0) return;
      await new Promise<void>((resolve) => {
        onIdle = resolve;
        setTimeout(resolve, limitMs).unref();
      });
    },
    close: () => {
      stopFollowing();
      isClosed = true;
    },
  };
}

/** Passes on bytes, ends and backpressure in both directions, until either side is gone. */
function splice(outer: TLSSocket, fd: number): void {
  const inner = new PipeEnd(fd, {
    onData: (bytes) => {
      if (!outer.write(bytes)) inner.pause();
    },
    onEnd: (isGone) => {
      outer.end();
      if (!isGone) return;
      outer.once('finish', () => outer.destroy());
      outer.setTimeout(LINGER_MS, () => outer.destroy());
    },
    onDrain: () => outer.resume(),
  });
  outer.on('drain', () => inner.resume());
  outer.on('data', (bytes: Buffer) => {
    if (!inner.write(bytes)) outer.pause();
  });
  outer.once('end', () => inner.finish());
  outer.once('close', () => inner.close());
}

/** Returns the peer of a TLS connection. @throws Error when the client has gone already. */
function tlsPeer(socket: TLSSocket, isVerified: boolean): TlsPeer {
  const address = addressOf(socket);
  if (address === '') throw new Error('the client has gone');
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

function pem(der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}
