/** The framing of multiplexed streams: 8 bytes of header (stream, three zeros, big-endian length), then the payload. */
import { dataLoss } from '../../errors/engine-error.js';
import type { StreamName } from '../../ports/logs.js';

/** `systemerr` carries an error of the daemon itself; clients fail with it. */
export type FramedStream = StreamName | 'systemerr';

const STREAM_IDS: Readonly<Record<FramedStream, number>> = { stdout: 1, stderr: 2, systemerr: 3 };
const STREAMS: readonly (FramedStream | undefined)[] = ['stdout', 'stdout', 'stderr', 'systemerr'];
export const HEADER_BYTES = 8;

/** Returns the header of a frame. */
export function frameHeader(stream: FramedStream, length: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header[0] = STREAM_IDS[stream];
  header.writeUInt32BE(length, 4);
  return header;
}

/** Returns header and payload for a vectored write, so that the payload is not copied. */
export function frame(stream: FramedStream, payload: Buffer): [Buffer, Buffer] {
  return [frameHeader(stream, payload.length), payload];
}

export interface Frame {
  readonly stream: FramedStream;
  readonly payload: Buffer;
}

/** Takes frames apart as a client does, from pieces of any size. */
export class FrameDecoder {
  #rest: Buffer = Buffer.alloc(0);

  /** True between frames: a stream that ends elsewhere was cut off. */
  get isAtBoundary(): boolean {
    return this.#rest.length === 0;
  }

  /**
   * Takes the next bytes and returns the frames that are complete now. @throws EngineError data-loss for bytes that are
   * no frame.
   */
  push(piece: Buffer): Frame[] {
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]);
    const frames: Frame[] = [];
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const stream = STREAMS[bytes[at] ?? 0];
      if (!stream || bytes.readUIntBE(at + 1, 3) !== 0)
        throw dataLoss(`no frame begins at byte ${at}`, { code: 'FRAME' });
      const end = at + HEADER_BYTES + bytes.readUInt32BE(at + 4);
      if (end > bytes.length) break;
      frames.push({ stream, payload: bytes.subarray(at + HEADER_BYTES, end) });
      at = end;
    }
    this.#rest = bytes.subarray(at);
    return frames;
  }
}
