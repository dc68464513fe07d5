/**
 * Reads any tar while its bytes arrive, for visitors that need time to take the content. The visitor decides what
 * entries mean.
 */
import { invalid } from '../../errors/engine-error.js';
import type { TarHeader } from './header.js';
import { isFileEntry, TarParser } from './tar-parser.js';

/** Takes the content of one file. The visitor may use the chunk of `data` only until the call ends. */
export interface EntrySink {
  data(chunk: Buffer): void | Promise<void>;
  end(): void | Promise<void>;
}

/** @returns where the content of a file goes; undefined: it is skipped. The header is reused for the next entry. */
export type VisitEntry = (header: Readonly<TarHeader>) => EntrySink | undefined;

/** Reads step by step. The parser does not wait, so what it reports in a step is kept, and handed on after the step. */
export class TarReader {
  readonly #parser: TarParser;
  #isEmpty = true;
  #sink: EntrySink | undefined;
  #content: Buffer | undefined;
  #isEnded = false;

  constructor(visit: VisitEntry) {
    this.#parser = new TarParser({
      raw: () => undefined,
      entry: (header) => {
        if (header.type === 'S') throw invalid('tar has a sparse file, which is not supported', { code: 'TAR_SPARSE' });
        if (isFileEntry(header)) header.type = '0';
        else if (header.type === '\0') header.type = '5';
        this.#sink = visit(header);
        return this.#sink !== undefined;
      },
      content: (chunk, start, end) => (this.#content = chunk.subarray(start, end)),
      contentEnd: () => (this.#isEnded = true),
    });
  }

  /** Takes the next bytes, in any portions. @throws EngineError invalid for what is no tar; what the visitor throws. */
  async write(chunk: Buffer): Promise<void> {
    for (let at = 0; at < chunk.length;) {
      this.#isEmpty = false;
      at = this.#parser.step(chunk, at);
      if (this.#content) {
        const taken = this.#sink?.data(this.#content);
        this.#content = undefined;
        if (taken) await taken;
      }
      if (this.#isEnded) {
        this.#isEnded = false;
        await this.#sink?.end();
      }
    }
  }

  /** Call after the last byte. @throws EngineError invalid for a tar that is cut off or empty. */
  end(): void {
    if (this.#isEmpty) throw invalid('unexpected EOF', { code: 'TAR_TRUNCATED' });
    this.#parser.finish();
  }
}
