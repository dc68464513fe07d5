/** The client at the other end of a connection: audit lines name it and authorization plugins are told of it. */
import { isEngineError } from '../errors/engine-error.js';
import { socketPeer, type TcpPeer, type UnixPeer } from '../sys/net/socket-peer.js';

/** A client on a TLS connection. It may have proved who it is with a certificate of a trusted authority. */
export interface TlsPeer {
  readonly kind: 'tls';
  /** Address and port: `192.0.2.1:40000` or `[2001:db8::1]:40000`. */
  readonly address: string;
  /** Common name of the certificate's subject; undefined when the client showed no certificate that was verified. */
  readonly commonName: string | undefined;
  /** The verified chain as PEM blocks, the client's own first. */
  readonly certificates: readonly string[];
}

export type Peer = UnixPeer | TcpPeer | TlsPeer;

/** Returns the peer of a plain connection. A peer that has just gone has no address any more. */
export function peerOf(fd: number): Peer {
  try {
    return socketPeer(fd);
  } catch (error) {
    if (isEngineError(error)) return { kind: 'tcp', address: 'gone' };
    throw error;
  }
}
