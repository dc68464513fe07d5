/** Inflates a gzip stream as fast as its plain bytes are taken, a piece ahead of who takes them. */
import type { Inflater } from '../sys/ffi/inflater.js';
import { freeBuffer } from '../sys/process/free-buffer.js';

const OUTPUT_BYTES = 256 << 10;

/**
 * Returns the plain bytes. Each chunk of either is lent until the next one is asked for. Frees the inflater. Throws for
 * damaged data.
 */
export async function* gunzipped(source: AsyncIterable<Buffer>, inflater: Inflater): AsyncGenerator<Buffer> {
  let output = Buffer.allocUnsafeSlow(OUTPUT_BYTES);
  let other = Buffer.allocUnsafeSlow(OUTPUT_BYTES);
  let ready: Buffer | undefined;
  let isAtEnd = false;
  let isPadding = false;
  /** Never rejects. */
  let running: Promise<unknown> | undefined;
  try {
    for await (const input of source) {
      let at = 0;
      let isFull = false;
      while (!isPadding && (at < input.length || isFull)) {
        // Zeros behind a member are padding, and so is all that follows.
        isPadding = isAtEnd && input[at] === 0;
        if (isPadding) break;
        if (isAtEnd) inflater.reset();
        const step = inflater.step(input.subarray(at), output);
        running = step.catch(() => undefined);
        if (ready) yield ready;
        const { readBytes, writtenBytes, isEnd } = await step;
        at += readBytes;
        isFull = writtenBytes === output.length && !isEnd;
        isAtEnd = isEnd;
        ready = writtenBytes > 0 ? output.subarray(0, writtenBytes) : undefined;
        [output, other] = [other, output];
      }
    }
    if (ready) yield ready;
  } finally {
    await running;
    inflater.free();
    freeBuffer(output);
    freeBuffer(other);
  }
  if (!isAtEnd) throw new Error('unexpected end of file');
}
