/** Passes the output of a plugin on to the daemon's log, line by line; its last words explain why it ended. */
import type { Readable } from 'node:stream';
import type { Logger } from '../../ports/logger.js';

const MAX_LINE_LENGTH = 4096;
const KEPT_LINES = 5;

export class PluginOutput {
  readonly #last: string[] = [];

  constructor(
    private readonly log: Logger,
    private readonly plugin: string,
  ) {}

  /** Reads a stream to its end. */
  follow(stream: Readable | undefined): void {
    const decoder = new TextDecoder();
    let rest = '';
    stream?.on('data', (chunk: Buffer) => {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = (lines.pop() ?? '').slice(0, MAX_LINE_LENGTH);
      for (const line of lines) this.#take(line);
    });
    stream?.on('close', () => this.#take(rest));
    stream?.on('error', () => stream.destroy());
  }

  /** Returns the last lines, '' for none. */
  lastWords(): string {
    return this.#last.join('\n');
  }

  #take(line: string): void {
    const text = line.slice(0, MAX_LINE_LENGTH);
    if (text === '') return;
    this.#last.push(text);
    if (this.#last.length > KEPT_LINES) this.#last.shift();
    this.log.info({ plugin: this.plugin }, text);
  }
}
