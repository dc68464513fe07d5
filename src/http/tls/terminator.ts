/**
 * Ends TLS in front of the HTTP library, whose own TLS lets clients without a certificate in. What is inside goes over a
 * socket pair, so that everything behind it is the same as for a plain connection.
 */
import { Socket } from 'node:net';
import { createServer, type DetailedPeerCertificate, type TLSSocket } from 'node:tls';
import type { Logger } from '../../ports/logger.js';
import { socketPair } from '../../sys/socket-pair.js';
import type { TlsPeer } from '../peer.js';
import type { TlsIdentity } from './identity.js';

/** Time for a client to finish its handshake. */
const HANDSHAKE_MS = 10_000;
/** How long a client may neither send nor close once it has got all that there was for it. */
const LINGER_MS = 30_000;

export interface TlsTerminator {
  /** Takes over a connected socket; the descriptor is given away. */
  accept(fd: number): void;
  /** Ends handshakes that are under way. Connections that are through are their server's to end. */
  close(): void;
}

/** @param serve gets the inner end of each connection whose client may come in. */
export function createTlsTerminator(identity: TlsIdentity, logger: Logger, serve: (fd: number, peer: TlsPeer) => void): TlsTerminator {
  const shaking = new Set<Socket>();
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
      const peer = tlsPeer(outer, identity.verifies);
      const [ours, theirs] = socketPair();
      splice(outer, new Socket({ fd: ours, allowHalfOpen: true, readable: true, writable: true }));
      serve(theirs, peer);
    } catch (err) {
      logger.warn({ err }, 'a connection could not be served');
      outer.destroy();
    }
  });
  server.on('tlsClientError', (error, outer) => {
    // Anybody who reaches the port can cause this: not worth more than a line for who looks for it.
    logger.debug({ address: outer.remoteAddress, reason: String(outer.authorizationError ?? error.message) }, 'TLS handshake refused');
    outer.destroy();
  });
  return {
    accept: (fd) => {
      const socket = new Socket({ fd, allowHalfOpen: true, readable: true, writable: true });
      socket.on('error', () => undefined);
      shaking.add(socket);
      socket.once('close', () => shaking.delete(socket));
      server.emit('connection', socket);
    },
    close: () => {
      stopFollowing();
      for (const socket of shaking) socket.destroy();
    },
  };
}

/** Passes on what comes, ends and pressure in both directions, until either side is gone. */
function splice(outer: TLSSocket, inner: Socket): void {
  inner.on('error', () => undefined);
  outer.once('close', () => inner.destroy());
  inner.once('close', () => outer.destroy());
  // Whoever served the connection may have closed it for good: the kernel tells no more than the end.
  inner.once('end', () => outer.setTimeout(LINGER_MS, () => outer.destroy()));
  outer.pipe(inner);
  inner.pipe(outer);
}

/** @throws Error when the client has gone already. */
function tlsPeer(socket: TLSSocket, isVerified: boolean): TlsPeer {
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined) throw new Error('the client has gone');
  const host = remoteAddress.replace(/^::ffff:(?=[\d.]+$)/, '');
  const address = `${host.includes(':') ? `[${host}]` : host}:${remotePort}`;
  if (!isVerified) return { kind: 'tls', address, commonName: undefined, certificates: [] };
  const chain: DetailedPeerCertificate[] = [];
  for (let next = socket.getPeerCertificate(true); !chain.includes(next); next = next.issuerCertificate) {
    chain.push(next);
    // The root names itself; an authority that is trusted without being one names nobody.
    if ((next.issuerCertificate as DetailedPeerCertificate | undefined) === undefined) break;
  }
  // A subject may have several; Go, whose reading authorization plugins know, takes the last.
  const names = [chain[0]?.subject.CN ?? []].flat() as readonly string[];
  return { kind: 'tls', address, commonName: names.at(-1), certificates: chain.map(({ raw }) => pem(raw)) };
}

function pem(der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}
