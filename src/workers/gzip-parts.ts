/**
 * Compresses a stream on several processors. It is cut into parts of equal size, which threads of libuv compress at the
 * same time; each has the end of the part before it as its dictionary, so next to nothing is lost. Joined in order, the
 * parts are one ordinary gzip member (RFC 1952). The same bytes give the same result, however they come in pieces.
 */
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { constants, crc32, deflateRaw } from 'node:zlib';
import { bufferDied } from './buffer-collector.js';
import { looksRandom } from './looks-random.js';

const compress = promisify(deflateRaw) as (
  part: Buffer,
  options: Parameters<typeof deflateRaw>[1] & object,
) => Promise<Buffer>;

/** The digest of what is made depends on this. */
const PART_BYTES = 512 << 10;
/** A match may lie as far back (RFC 1951). */
const WINDOW_BYTES = 32 << 10;
/** One more than processors, for the time in which a part is sent; libuv has four threads for all of this process. */
const MAX_AT_ONCE = Math.min(availableParallelism() + 1, 4);

/** Where the samples of a part begin that tell whether it is worth to be compressed. */
const SAMPLES = [PART_BYTES / 8, (PART_BYTES * 3) / 8, (PART_BYTES * 5) / 8, (PART_BYTES * 7) / 8];
const SAMPLE_BYTES = 8 << 10;
/** A part whose samples all keep more than this share of their length is sent as it is. */
const WORTHLESS = 0.98;
const NO_COMPRESSION = 0;

/** No flags, no time, no extra flags, Unix: as zlib writes it for its middle levels. */
const HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
/** An empty block that is the last one. */
const LAST_BLOCK = Buffer.from([3, 0]);

/** Parts that are being compressed for all streams of this thread. */
let running = 0;

interface Part {
  readonly buffer: Buffer;
  readonly compressed: Promise<Buffer>;
}

/** Yields `chunks` compressed with `level` (1 to 9). A chunk may be used again as soon as the next one is asked for. */
export async function* gzipInParts(chunks: Iterable<Buffer>, level: number): AsyncGenerator<Buffer, void, void> {
  const waiting: Part[] = [];
  const free: Buffer[] = [];
  const finished = async ({ buffer, compressed }: Part): Promise<Buffer> => {
    const result = await compressed;
    free.push(buffer);
    return result;
  };
  let dictionary: Buffer | undefined;
  let checksum = 0;
  let length = 0;
  yield HEADER;
  try {
    for (const part of inParts(chunks, () => free.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES))) {
      checksum = crc32(part, checksum);
      length += part.length;
      // A stream that is alone has all processors; of many, each has one.
      for (let next = isFull() && waiting.shift(); next; next = isFull() && waiting.shift()) yield await finished(next);
      const compressed = compressPart(part, dictionary, level);
      // A failure is heard by who waits for the part. Without this, one that comes earlier would end the thread.
      compressed.catch(() => undefined);
      waiting.push({ buffer: part, compressed });
      dictionary = Buffer.from(part.subarray(-WINDOW_BYTES));
    }
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) yield await finished(next);
  } finally {
    // No thread works on for a reader that has stopped.
    await Promise.allSettled(waiting.map(({ compressed }) => compressed));
  }
  const sums = Buffer.alloc(8);
  sums.writeUInt32LE(checksum >>> 0);
  sums.writeUInt32LE(length % 2 ** 32, 4);
  yield Buffer.concat([LAST_BLOCK, sums]);
}

function isFull(): boolean {
  return running >= MAX_AT_ONCE;
}

async function compressPart(part: Buffer, dictionary: Buffer | undefined, level: number): Promise<Buffer> {
  running += 1;
  try {
    // A part ends at a whole byte, without the mark of an end.
    const finishFlush = constants.Z_SYNC_FLUSH;
    const options = { memLevel: 9, finishFlush, chunkSize: PART_BYTES, ...(dictionary && { dictionary }) };
    return await compress(part, { ...options, level: (await isWorthIt(part)) ? level : NO_COMPRESSION });
  } finally {
    running -= 1;
    bufferDied(PART_BYTES);
  }
}

/**
 * Archives and pictures are compressed already: they cost more time than anything else and become no shorter. They are
 * recognized by samples, each of which knows as much of what came before it as the whole part would.
 */
async function isWorthIt(part: Buffer): Promise<boolean> {
  const samples = SAMPLES.map((at) => part.subarray(at, at + SAMPLE_BYTES));
  if (part.length < PART_BYTES || !samples.every(looksRandom)) return true;
  for (const at of SAMPLES) {
    const dictionary = part.subarray(at - WINDOW_BYTES, at);
    const compressed = await compress(part.subarray(at, at + SAMPLE_BYTES), { level: 1, dictionary });
    if (compressed.length < SAMPLE_BYTES * WORTHLESS) return true;
  }
  return false;
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
