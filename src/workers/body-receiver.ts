/**
 * Receives the body of a request where it is wanted. Of chunks that are all as long, the data is received side by side
 * and what is between them elsewhere, so that no byte is moved.
 */
import { cancelled, isEngineError, type EngineError } from '../errors/engine-error.js';
import type { SocketBody } from '../ports/archives.js';
import { Parts, receiveFromSocket } from '../sys/files/fd.js';
import { libc } from '../sys/ffi/libc.js';
import { type BodyFraming, ChunkedBody, type NextChunk, SizedBody } from '../text/body-framing.js';

/** A client's socket has room for 208 KiB. */
const MOST_BYTES = 256 * 1024;
/** For shorter ones the parts cost more than to move the bytes. */
const LEAST_CHUNK_BYTES = 4096;
const MOST_FRAMES = MOST_BYTES / LEAST_CHUNK_BYTES + 1;
/** Longer ones have extensions. */
const MOST_FRAME_BYTES = 16;

const memcmp = libc.func<[a: Uint8Array, b: Uint8Array, length: number]>(
  'int memcmp(const void *a, const void *b, size_t length)',
);

export class BodyReceiver {
  readonly #fd: number;
  readonly #framing: BodyFraming;
  readonly #parts = new Parts(2 * MOST_FRAMES + 2);
  /** Gets the frames, one right behind the other. */
  readonly #frames = Buffer.allocUnsafeSlow(MOST_FRAMES * MOST_FRAME_BYTES);
  readonly #framesAddress = Number(libc.addressOf(this.#frames));
  /** The memory of the last call, and its address. */
  #memory: ArrayBufferLike | undefined;
  #memoryAddress = 0;
  /** So they look when all chunks are like this one. */
  #expected = Buffer.alloc(0);
  #expectedNext: NextChunk | undefined;

  constructor({ fd, length }: SocketBody) {
    this.#fd = fd;
    this.#framing = length === undefined ? new ChunkedBody() : new SizedBody(length);
  }

  get isComplete(): boolean {
    return this.#framing.isComplete;
  }

  /**
   * Fills the beginning of a buffer with bytes of the body. Returns how many came, which may be none; undefined when
   * nothing is there yet.
   * @throws EngineError cancelled when the client leaves before the end, invalid for chunks that are none.
   */
  receive(into: Buffer): number | undefined {
    const framing = this.#framing;
    if (framing instanceof ChunkedBody && framing.isInChunks) {
      const next = framing.likelyNext;
      const frameBytes = next.frame.length;
      if (next.bytes >= LEAST_CHUNK_BYTES && frameBytes <= MOST_FRAME_BYTES && into.length > frameBytes)
        return this.#receiveChunks(framing, next, into);
    }
    const count = this.#come(() => receiveFromSocket(this.#fd, into, Math.min(into.length, framing.wantedBytes)));
    return count === undefined ? undefined : framing.extract(into.subarray(0, count));
  }

  #receiveChunks(framing: ChunkedBody, next: NextChunk, into: Buffer): number | undefined {
    const parts = this.#parts;
    const frameBytes = next.frame.length;
    const firstBytes = framing.chunkRest;
    let address = this.#addressOf(into);
    let frameAddress = this.#framesAddress;
    let room = Math.min(into.length, MOST_BYTES);
    parts.clear();
    for (let rest = firstBytes; ; rest = next.bytes) {
      const length = Math.min(rest, room);
      if (length > 0) parts.add(address, length);
      address += length;
      room -= length;
      // Room is taken off for a frame as well, because what comes in its place may be data.
      if (room <= frameBytes) break;
      parts.add(frameAddress, frameBytes);
      frameAddress += frameBytes;
      room -= frameBytes;
    }
    const count = this.#come(() => parts.receive(this.#fd));
    if (count === undefined) return undefined;
    framing.passData(Math.min(count, firstBytes));
    if (count <= firstBytes) return count;
    const others = count - firstBytes;
    const frames = Math.ceil(others / (frameBytes + next.bytes));
    const lastBytes = others - (frames - 1) * (frameBytes + next.bytes) - frameBytes;
    if (lastBytes < 0 || !this.#areExpected(next, frames))
      return firstBytes + this.#sort(framing, next, into.subarray(firstBytes), others);
    framing.passChunk(lastBytes);
    return count - frames * frameBytes;
  }

  /** To ask for the address of a buffer costs more than the rest of a call. */
  #addressOf({ buffer, byteOffset }: Buffer): number {
    if (buffer !== this.#memory) {
      this.#memory = buffer;
      this.#memoryAddress = Number(libc.addressOf(new Uint8Array(buffer)));
    }
    return this.#memoryAddress + byteOffset;
  }

  #areExpected(next: NextChunk, frames: number): boolean {
    if (this.#expectedNext !== next) this.#expected = Buffer.alloc(MOST_FRAMES * next.frame.length, next.frame);
    this.#expectedNext = next;
    return memcmp(this.#frames, this.#expected, frames * next.frame.length) === 0;
  }

  /**
   * Looks at what was received behind the first chunk when a frame is not as expected, or has not all come: what is
   * data then may be where frames should be, and the reverse.
   */
  #sort(framing: ChunkedBody, { bytes, frame }: NextChunk, into: Buffer, count: number): number {
    const pieces: Buffer[] = [];
    let frameAt = 0;
    for (let from = 0, left = count; left > 0;) {
      const frameBytes = Math.min(frame.length, left);
      pieces.push(this.#frames.subarray(frameAt, frameAt + frameBytes));
      frameAt += frameBytes;
      left -= frameBytes;
      const dataBytes = Math.min(bytes, left);
      pieces.push(into.subarray(from, from + dataBytes));
      from += dataBytes;
      left -= dataBytes;
    }
    const received = Buffer.concat(pieces);
    const length = framing.extract(received);
    received.copy(into, 0, 0, length);
    return length;
  }

  #come(receive: () => number | undefined): number | undefined {
    let count: number | undefined;
    try {
      count = receive();
    } catch (error) {
      throw isEngineError(error) && error.code === 'ECONNRESET' ? clientLeft() : error;
    }
    if (count === 0) throw clientLeft();
    return count;
  }
}

const clientLeft = (): EngineError => cancelled('the client closed the connection before the end of the request body');
