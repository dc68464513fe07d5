/** Ends TLS in front of a server that reads plain bytes. */
import type { SecureContextOptions } from 'node:tls';

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

/** A listener shows this to its clients, and says whether they must show a certificate of an authority in `context`. */
export interface TlsRules {
  readonly context: SecureContextOptions;
  readonly verifies: boolean;
}

export interface FollowedTlsRules extends TlsRules {
  /** Calls back with each new context; the function that it returns ends that. */
  follow(callback: (context: SecureContextOptions) => void): () => void;
}

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
  /** Waits until clients have been sent what was written to them, up to the limit, and cuts them off. */
  end(limitMs: number): Promise<void>;
}

/** @param serve gets the server's end of a socket pair for each client that is let in; the descriptor is given away. */
export type TerminateTls = (rules: FollowedTlsRules, serve: (fd: number, peer: TlsPeer) => void) => TlsTerminator;
