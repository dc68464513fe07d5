/** The framing of multiplexed streams: 8 bytes of header (stream, three zeros, big-endian length), then the payload. */
import type { StreamName } from '../ports/logs.js';

const STREAM_IDS: Readonly<Record<StreamName | 'systemerr', number>> = { stdout: 1, stderr: 2, systemerr: 3 };
export const HEADER_BYTES = 8;

/** The header of a frame. */
export function frameHeader(stream: StreamName | 'systemerr', length: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header[0] = STREAM_IDS[stream];
  header.writeUInt32BE(length, 4);
  return header;
}

/** Header and payload, for a vectored write: the payload is not copied. */
export function frame(stream: StreamName | 'systemerr', payload: Buffer): [Buffer, Buffer] {
  return [frameHeader(stream, payload.length), payload];
}
