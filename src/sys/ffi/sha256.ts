/** sha256 in threads of libuv, with the OpenSSL that is in the process; else in the thread that asks. */
import { createHash } from 'node:crypto';
import { libc } from './libc.js';

export interface Sha256 {
  /** Adds bytes, not while others are added aside. */
  add(bytes: Buffer): void;
  /**
   * Adds bytes in another thread. They must stay as they are until the promise resolves, and nothing else may be asked
   * for until then. Never rejects. undefined: they are added already, since they are few.
   */
  addAside(bytes: Buffer): Promise<void> | undefined;
  /** Ends it, and returns the digest in hexadecimal. @throws Error when bytes could not be added. */
  digest(): string;
}

/** More than the 112 that SHA256_CTX has (openssl/sha.h). */
const STATE_BYTES = 256;
const DIGEST_BYTES = 32;
/** A trip to another thread and back takes as long as hashing so many. */
const FEW_BYTES = 32 << 10;

interface Functions {
  readonly init: (state: Buffer) => number;
  readonly update: (state: Buffer, bytes: Buffer, count: number) => number;
  readonly updateAside: (state: Buffer, bytes: Buffer, count: number) => Promise<number>;
  readonly final: (digest: Buffer, state: Buffer) => number;
}

let functions: Functions | undefined;
let isMissing = false;

/** Begins a sum. */
export function sha256(): Sha256 {
  if (functions === undefined && !isMissing) {
    functions = load();
    isMissing = functions === undefined;
  }
  return functions ? new AsideSha256(functions) : new OwnSha256();
}

/** Returns undefined where Node keeps its OpenSSL for itself, or has another one. */
function load(): Functions | undefined {
  const prototype = 'int SHA256_Update(void *state, const void *bytes, size_t count)';
  try {
    const loaded: Functions = {
      init: libc.func('int SHA256_Init(void *state)'),
      update: libc.func(prototype),
      updateAside: libc.pooled(prototype),
      final: libc.func('int SHA256_Final(void *digest, void *state)'),
    };
    return isAsDeclared(loaded) ? loaded : undefined;
  } catch {
    return undefined;
  }
}

function isAsDeclared(of: Functions): boolean {
  const sum = new AsideSha256(of);
  sum.add(Buffer.from('abc'));
  return sum.digest() === createHash('sha256').update('abc').digest('hex');
}

class AsideSha256 implements Sha256 {
  readonly #functions: Functions;
  readonly #state = Buffer.alloc(STATE_BYTES);
  #failure: unknown;

  constructor(of: Functions) {
    this.#functions = of;
    of.init(this.#state);
  }

  add(bytes: Buffer): void {
    this.#functions.update(this.#state, bytes, bytes.length);
  }

  addAside(bytes: Buffer): Promise<void> | undefined {
    if (bytes.length < FEW_BYTES) {
      this.add(bytes);
      return undefined;
    }
    return this.#functions.updateAside(this.#state, bytes, bytes.length).then(
      () => undefined,
      (error: unknown) => void (this.#failure ??= error),
    );
  }

  digest(): string {
    if (this.#failure !== undefined) throw this.#failure as Error;
    const digest = Buffer.alloc(DIGEST_BYTES);
    this.#functions.final(digest, this.#state);
    return digest.toString('hex');
  }
}

class OwnSha256 implements Sha256 {
  readonly #hash = createHash('sha256');

  add(bytes: Buffer): void {
    this.#hash.update(bytes);
  }

  addAside(bytes: Buffer): undefined {
    this.add(bytes);
  }

  digest(): string {
    return this.#hash.digest('hex');
  }
}
