/** Contexts that come in the body of a request: each has an address of its own, which is asked once. */
import { randomUUID } from 'node:crypto';
import type { ArchiveSource } from '../../ports/archives.js';

const PREFIX = 'http://request-body/';

export class RequestBodies {
  readonly #bodies = new Map<string, ArchiveSource>();

  /** Returns the address of a body until it is forgotten. */
  add(body: ArchiveSource): string {
    const address = `${PREFIX}${randomUUID()}`;
    this.#bodies.set(address, body);
    return address;
  }

  forget(address: string): void {
    this.#bodies.delete(address);
  }

  /** Returns the body at an address; undefined: it is another one's address, or was asked before. */
  take(address: string): ArchiveSource | undefined {
    const body = this.#bodies.get(address);
    this.#bodies.delete(address);
    return body;
  }
}
