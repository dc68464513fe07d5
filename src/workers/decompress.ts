/** Decompression of layer blobs by what their first bytes say, as media types are known to lie. */
import { once } from 'node:events';
import { createGunzip } from 'node:zlib';
import { Decompress as ZstdDecompress } from 'fzstd';
import { dataLoss, isEngineError, messageOf } from '../errors/engine-error.js';

/** Takes compressed bytes in order and hands plain ones to the consumer given to `createDecompressor`. */
export interface Decompressor {
  /** Resolves when more bytes are welcome. Rejects with `data-loss` for a damaged stream or with the consumer's error. */
  write(chunk: Buffer): Promise<void>;
  /** Resolves when the consumer has had everything. */
  end(): Promise<void>;
  /** Frees everything; nothing more reaches the consumer. Idempotent. */
  destroy(): void;
}

type Consumer = (chunk: Buffer) => void;

/** Output buffers: large ones make few trips between the threads that inflate and the one that extracts. */
const OUTPUT_BYTES = 256 << 10;
/** The longest magic number. */
const MAGIC_BYTES = 6;

const startsWith = (bytes: Uint8Array, ...magic: number[]): boolean => magic.every((byte, index) => bytes[index] === byte);

const damaged = (error: unknown): Error =>
  isEngineError(error) ? error : dataLoss(`error while decompressing a layer: ${messageOf(error)}`, { code: 'BAD_COMPRESSION', cause: error });

function decompressorFor(head: Uint8Array, consumer: Consumer): Decompressor {
  if (startsWith(head, 0x1f, 0x8b)) return gzip(consumer);
  if (startsWith(head, 0x28, 0xb5, 0x2f, 0xfd) || (startsWith(head.subarray(1), 0x2a, 0x4d, 0x18) && (head[0] ?? 0) >> 4 === 5)) return zstd(consumer);
  if (startsWith(head, 0x42, 0x5a, 0x68)) throw dataLoss('unsupported compression of a layer: bzip2', { code: 'BAD_COMPRESSION' });
  if (startsWith(head, 0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00)) throw dataLoss('unsupported compression of a layer: xz', { code: 'BAD_COMPRESSION' });
  return plain(consumer);
}

/** gzip, zstd or plain bytes; decided when the first bytes arrive. */
export function createDecompressor(consumer: Consumer): Decompressor {
  let head = Buffer.alloc(0);
  let inner: Decompressor | undefined;
  const decide = async (): Promise<Decompressor> => {
    inner = decompressorFor(head, consumer);
    await inner.write(head);
    return inner;
  };
  return {
    async write(chunk) {
      if (inner) return inner.write(chunk);
      head = Buffer.concat([head, chunk]);
      if (head.length >= MAGIC_BYTES) await decide();
    },
    async end() {
      await (inner ?? (await decide())).end();
    },
    destroy: () => inner?.destroy(),
  };
}

function plain(consumer: Consumer): Decompressor {
  return {
    write: async (chunk) => consumer(chunk),
    end: async () => undefined,
    destroy: () => undefined,
  };
}

/** zlib inflates on its own threads, so that inflating one piece overlaps extracting the piece before. */
function gzip(consumer: Consumer): Decompressor {
  const stream = createGunzip({ chunkSize: OUTPUT_BYTES });
  let failure: Error | undefined;
  stream.on('data', (chunk: Buffer) => {
    try {
      consumer(chunk);
    } catch (error) {
      stream.destroy(error as Error);
    }
  });
  stream.on('error', (error) => (failure ??= damaged(error)));
  const check = (): void => {
    if (failure) throw failure;
  };
  const settled = async (event: string): Promise<void> => {
    await once(stream, event).catch((error: unknown) => (failure ??= damaged(error)));
    check();
  };
  return {
    async write(chunk) {
      check();
      if (!stream.write(chunk)) await settled('drain');
    },
    async end() {
      check();
      stream.end();
      await settled('end');
    },
    destroy: () => void stream.destroy(),
  };
}

function zstd(consumer: Consumer): Decompressor {
  let isDestroyed = false;
  const stream = new ZstdDecompress((chunk) => {
    if (!isDestroyed && chunk.length > 0) consumer(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length));
  });
  const push = async (chunk: Uint8Array, isLast: boolean): Promise<void> => {
    try {
      stream.push(chunk, isLast);
    } catch (error) {
      throw damaged(error);
    }
  };
  return {
    write: (chunk) => push(chunk, false),
    end: () => push(new Uint8Array(0), true),
    destroy: () => (isDestroyed = true),
  };
}
