/** The reply of a build: it begins with the first line, and what fails before has an ordinary error. */
import { messageOf } from '../errors/engine-error.js';
import { buildFailure } from './api/build-progress.js';
import type { Exchange } from './exchange.js';
import type { ResponseStream } from './response-stream.js';

export class BuildReply {
  #stream: ResponseStream | undefined;

  constructor(private readonly x: Exchange) {}

  write(line: string): void {
    this.#open().write(line);
  }

  /** Resolves when the client has taken what was written. */
  ready(): Promise<void> {
    return this.#stream?.ready() ?? Promise.resolve();
  }

  end(): void {
    this.#open().end();
  }

  /** Ends with a line that tells the failure. @throws the error itself when nothing has been written. */
  fail(error: unknown, exitCode?: number): void {
    if (this.#stream === undefined) throw error;
    this.x.noteFailure();
    this.#stream.write(buildFailure(messageOf(error), exitCode));
    this.#stream.end();
  }

  #open(): ResponseStream {
    this.#stream ??= this.x.stream(200, { 'Content-Type': 'application/json' });
    return this.#stream;
  }
}
