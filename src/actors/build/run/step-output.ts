/** The output of the process of a RUN: handed on as it comes, without gathering lines. */
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessStdio } from '../../../ports/supervisor.js';

/** The streams of a process that has ended may stay silent for this time before they count as ended. */
const SILENCE_MS = 5000;

export type StepOutput = (stream: 1 | 2, bytes: Buffer) => Promise<void>;

export class OutputPump {
  readonly #ended: Promise<unknown>;
  #pieces = 0;
  #waiting = 0;

  constructor(
    { stdout, stderr }: Pick<ProcessStdio, 'stdout' | 'stderr'>,
    private readonly output: StepOutput,
  ) {
    this.#ended = Promise.all([stdout && this.#follow(stdout, 1), stderr && this.#follow(stderr, 2)]);
  }

  /** Resolves when all that the process has written was taken. Call it after its end. */
  async drained(): Promise<void> {
    const over = new AbortController();
    const { signal } = over;
    const ended = this.#ended.then(() => over.abort());
    while (!signal.aborted) {
      const pieces = this.#pieces;
      await Promise.race([ended, delay(SILENCE_MS, undefined, { signal }).catch(() => undefined)]);
      // A client that reads slowly gets everything; a pipe that somebody else holds open does not hold the build.
      if (this.#waiting === 0 && this.#pieces === pieces) over.abort();
    }
  }

  async #follow(source: Readable, stream: 1 | 2): Promise<void> {
    try {
      for await (const piece of source) {
        this.#pieces++;
        this.#waiting++;
        // A client that has gone takes nothing more, but the process must not wait for it.
        await this.output(stream, piece as Buffer).catch(() => undefined);
        this.#waiting--;
      }
    } catch {
      // The stream was closed before its end, because nobody wants the rest.
    }
  }
}
