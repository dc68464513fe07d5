/**
 * The certificates that TLS listeners show and trust. A reload reads them again, for connections that come afterwards.
 */
import type { SecureContextOptions } from 'node:tls';
import type { FollowedTlsRules } from '../ports/tls-terminator.js';
import { readTlsCredentials, type TlsCredentials, type TlsFiles } from '../sys/net/tls-credentials.js';

export class TlsIdentity implements FollowedTlsRules {
  readonly #files: TlsFiles;
  readonly #followers = new Set<(context: SecureContextOptions) => void>();
  #credentials: TlsCredentials;

  /** Reads the files. @throws EngineError invalid naming the option and the file. */
  constructor(files: TlsFiles) {
    this.#files = files;
    this.#credentials = readTlsCredentials(files);
  }

  /** True when clients have to show a certificate. */
  get verifies(): boolean {
    return this.#files.ca !== undefined;
  }

  get context(): SecureContextOptions {
    return this.#credentials.context;
  }

  get summary(): string {
    return this.#credentials.summary;
  }

  get warnings(): readonly string[] {
    return this.#credentials.warnings;
  }

  follow(callback: (context: SecureContextOptions) => void): () => void {
    this.#followers.add(callback);
    return () => void this.#followers.delete(callback);
  }

  /**
   * Reads the files again and says what would change. Nothing changes before `apply`.
   * @throws EngineError as the constructor.
   */
  reread(): { readonly summary: string; readonly apply: () => void } {
    const credentials = readTlsCredentials(this.#files);
    const apply = (): void => {
      this.#credentials = credentials;
      for (const follower of this.#followers) follower(credentials.context);
    };
    return { summary: credentials.summary, apply };
  }
}
