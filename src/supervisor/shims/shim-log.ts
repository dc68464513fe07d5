/**
 * The log of the shims that the daemon starts itself. It cannot be containerd's: that ends with containerd, and its end
 * tells of containerd's.
 */
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Socket } from 'node:net';
import { isEngineError } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import { makeFifo, openOwnFifo } from '../stdio/fifo.js';
import { LogLines } from '../log-lines.js';

export class ShimLog {
  readonly #path: string;
  readonly #logger: Logger;
  #reader: Socket | undefined;

  constructor(path: string, logger: Logger) {
    this.#path = path;
    this.#logger = logger;
  }

  /** Reads it from now on. A shim that is started must find it open. */
  open(): void {
    if (this.#reader !== undefined) return;
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
    try {
      makeFifo(this.#path);
    } catch (error) {
      // Shims that an earlier daemon has started write into it.
      if (!isEngineError(error) || error.code !== 'EEXIST') throw error;
    }
    const lines = new LogLines(this.#logger, () => undefined);
    this.#reader = openOwnFifo(this.#path);
    this.#reader.on('data', (chunk) => lines.push(chunk));
    this.#reader.unref();
  }

  close(): void {
    this.#reader?.destroy();
    this.#reader = undefined;
  }
}
