/** The client at the other end of a connection: audit lines name it and authorization plugins are told of it. */
import { isEngineError } from '../errors/engine-error.js';
import type { TlsPeer } from '../ports/tls-terminator.js';
import { socketPeer, type TcpPeer, type UnixPeer } from '../sys/net/socket-peer.js';

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
