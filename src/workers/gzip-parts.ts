/**
 * Compresses a stream on several processors. It is cut into parts of equal size, which threads of libuv compress at the
 * same time; each has the end of the part before it as its dictionary, so next to nothing is lost. Joined in order, the
 * parts are one ordinary gzip member (RFC 1952). The same bytes give the same result, however they come in pieces.
 */
import { crc32 } from 'node:zlib';
import { bufferDied } from './buffer-collector.js';
import { PART_BYTES, type PartDeflater, WINDOW_BYTES } from './deflate-part.js';

/** No flags, no time, no extra flags, Unix: as zlib writes it for its middle levels. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
/** An empty block that is the last one. */
const LAST_BLOCK = Buffer.from([3, 0]);

/** Parts that are being compressed for all streams of this thread. */
let running = 0;

/**
 * Yields `chunks` compressed. A chunk may be used again as soon as the next one is asked for.
 * @param deflater is for this stream alone.
 */
export async function* gzipInParts(
  chunks: Iterable<Buffer>,
  deflater: PartDeflater,
): AsyncGenerator<Buffer, void, void> {
  const waiting: Promise<Buffer>[] = [];
  const free: Buffer[] = [];
  // A stream that is alone has all processors; of many, each has one.
  const isFull = (): boolean => Math.max(running, waiting.length) >= deflater.atOnce;
  let dictionary: Buffer | undefined;
  let checksum = 0;
  let length = 0;
  yield HEADER;
  try {
    for (const part of inParts(chunks, () => free.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES))) {
      checksum = crc32(part, checksum);
      length += part.length;
      for (let next = isFull() && waiting.shift(); next; next = isFull() && waiting.shift()) yield await next;
      const compressed = compressPart(part, dictionary, deflater).finally(() => free.push(part));
      // A failure is heard by who waits for the part. Without this, one that comes earlier would end the thread.
      compressed.catch(() => undefined);
      waiting.push(compressed);
      dictionary = Buffer.from(part.subarray(-WINDOW_BYTES));
    }
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) yield await next;
  } finally {
    // No thread works on for a reader that has stopped.
    await Promise.allSettled(waiting);
  }
  const sums = Buffer.alloc(8);
  sums.writeUInt32LE(checksum >>> 0);
  sums.writeUInt32LE(length % 2 ** 32, 4);
  yield Buffer.concat([LAST_BLOCK, sums]);
}

async function compressPart(part: Buffer, dictionary: Buffer | undefined, deflater: PartDeflater): Promise<Buffer> {
  running += 1;
  try {
    const compressed = await deflater.deflate(part, dictionary);
    bufferDied(compressed.length + WINDOW_BYTES);
    return compressed;
  } finally {
    running -= 1;
  }
}

/** Only the last part may be shorter. */
function* inParts(chunks: Iterable<Buffer>, newBuffer: () => Buffer): Generator<Buffer> {
  let part: Buffer | undefined;
  let filled = 0;
  for (const chunk of chunks) {
    for (let at = 0; at < chunk.length;) {
      part ??= newBuffer();
      const copied = chunk.copy(part, filled, at);
      at += copied;
      filled += copied;
      if (filled < PART_BYTES) continue;
      yield part;
      part = undefined;
      filled = 0;
    }
  }
  if (part) yield part.subarray(0, filled);
}
