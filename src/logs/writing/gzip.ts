/** Compressed log files. The header of each has the time of its last record, so that readers can skip the file. */
import { open, rm, type FileHandle } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { constants, crc32, createDeflateRaw, createGunzip } from 'node:zlib';
import { formatTime, parseTime } from '../record-time.js';

/** These bytes say: an extra field follows; no modification time; unknown extra flags; Unix (RFC 1952). */
const HEADER = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 3];

/** Compresses a file into a new one, durably. If that fails, the new file is removed. */
export async function compressFile(from: string, to: string, lastTimeNs: bigint | undefined): Promise<void> {
  const source = await open(from, 'r');
  try {
    const target = await open(to, 'w', 0o640);
    try {
      await compress(source, target, lastTimeNs);
      await target.sync();
    } finally {
      await target.close();
    }
  } catch (error) {
    await rm(to, { force: true });
    throw error;
  } finally {
    await source.close();
  }
}

async function compress(source: FileHandle, target: FileHandle, lastTimeNs: bigint | undefined): Promise<void> {
  const extra = Buffer.from(lastTimeNs === undefined ? '{}' : JSON.stringify({ lastTime: formatTime(lastTimeNs) }));
  const extraLength = Buffer.alloc(2);
  extraLength.writeUInt16LE(extra.length);
  await target.write(Buffer.concat([Buffer.from(HEADER), extraLength, extra]));
  let crc = 0;
  let size = 0;
  await pipeline(
    source.createReadStream({ autoClose: false, highWaterMark: 256 * 1024 }),
    async function* tap(chunks: AsyncIterable<Buffer>) {
      for await (const chunk of chunks) {
        crc = crc32(chunk, crc);
        size += chunk.length;
        yield chunk;
      }
    },
    createDeflateRaw({ level: constants.Z_BEST_SPEED }),
    async (chunks: AsyncIterable<Buffer>) => {
      for await (const chunk of chunks) await target.appendFile(chunk);
    },
  );
  const trailer = Buffer.alloc(8);
  trailer.writeUInt32LE(crc >>> 0);
  trailer.writeUInt32LE(size % 2 ** 32, 4);
  await target.appendFile(trailer);
}

/** Returns the time of the last record from the header; undefined when it has none. */
export async function lastTimeOf(file: FileHandle): Promise<bigint | undefined> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(512), 0, 512, 0);
  if (bytesRead < 12 || ((buffer[3] ?? 0) & 4) === 0) return undefined;
  const extra = buffer.toString('utf8', 12, Math.min(bytesRead, 12 + buffer.readUInt16LE(10)));
  const match = /"lastTime":"([^"]+)"/.exec(extra);
  return match?.[1] === undefined ? undefined : parseTime(match[1]);
}

/**
 * Unpacks into a file. From a damaged file the part before the damage is unpacked, then the error is thrown; a file
 * that was cut off yields what it has.
 */
export async function unpack(source: FileHandle, target: FileHandle): Promise<void> {
  await pipeline(
    source.createReadStream({ autoClose: false, start: 0, highWaterMark: 256 * 1024 }),
    createGunzip({ finishFlush: constants.Z_SYNC_FLUSH }),
    async (chunks: AsyncIterable<Buffer>) => {
      for await (const chunk of chunks) await target.appendFile(chunk);
    },
  );
}
