/** The server's side of WebSocket frames (RFC 6455, section 5). */

/** Codes of frames: the first three carry data, the others control the connection. */
export const Opcode = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Reasons to close (RFC 6455, section 7.4.1). */
export const CloseCode = { normal: 1000, protocolError: 1002 } as const;

const FINAL = 0x80;
const MASKED = 0x80;
/** Control frames are not fragmented, and their payload is no longer than this. */
const MAX_CONTROL_BYTES = 125;
const MASK_BYTES = 4;

export interface FrameSink {
  /** Takes a piece of a message. The client's bytes are a stream, so its frames and messages have no meaning. */
  data(piece: Buffer): void;
  ping(payload: Buffer): void;
  close(): void;
}

export class ProtocolError extends Error {}

/** Makes the head of a frame. The server's frames are not masked. */
export function frame(opcode: number, payloadBytes: number): Buffer {
  const long = payloadBytes > 0xffff;
  const head = Buffer.alloc(long ? 10 : payloadBytes > MAX_CONTROL_BYTES ? 4 : 2);
  head[0] = FINAL | opcode;
  if (long) {
    head[1] = 127;
    head.writeUInt32BE(Math.floor(payloadBytes / 2 ** 32), 2);
    head.writeUInt32BE(payloadBytes % 2 ** 32, 6);
  } else if (payloadBytes > MAX_CONTROL_BYTES) {
    head[1] = 126;
    head.writeUInt16BE(payloadBytes, 2);
  } else {
    head[1] = payloadBytes;
  }
  return head;
}

export function controlFrame(opcode: number, payload: Uint8Array): Buffer {
  return Buffer.concat([frame(opcode, payload.length), payload]);
}

export function closeFrame(code: number): Buffer {
  const payload = Buffer.alloc(2);
  payload.writeUInt16BE(code);
  return controlFrame(Opcode.close, payload);
}

/**
 * Takes frames apart as their bytes come. Data is passed on at once, however long a frame says it is, so at most one
 * head or one control frame is held.
 */
export class FrameParser {
  readonly #sink: FrameSink;
  /** Bytes of an incomplete head or control frame. */
  #held = Buffer.alloc(0);
  /** Bytes that are missing of the data frame whose payload is arriving. */
  #remaining = 0;
  #mask = Buffer.alloc(MASK_BYTES);
  #maskAt = 0;
  /** True while the last frame of a message has not come. */
  #isFragmented = false;
  #isClosed = false;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /**
   * Takes the next bytes. Nothing is read behind a close frame.
   * @throws ProtocolError for what a client must not send.
   */
  push(chunk: Buffer): void {
    let rest = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = Buffer.alloc(0);
    while (rest.length > 0 && !this.#isClosed) {
      const used = this.#remaining > 0 ? this.#takeData(rest) : this.#takeFrame(rest);
      if (used === 0) {
        this.#held = Buffer.from(rest);
        return;
      }
      rest = rest.subarray(used);
    }
  }

  #takeData(bytes: Buffer): number {
    const piece = Buffer.from(bytes.subarray(0, this.#remaining));
    this.#unmask(piece);
    this.#remaining -= piece.length;
    this.#sink.data(piece);
    return piece.length;
  }

  /** Takes a head, with a control frame's payload. Returns its bytes; 0 when they are not all there. */
  #takeFrame(bytes: Buffer): number {
    const [first = 0, second = 0] = bytes;
    if (bytes.length < 2) return 0;
    const opcode = first & 0x0f;
    const isFinal = (first & FINAL) !== 0;
    if ((first & 0x70) !== 0) throw new ProtocolError('reserved bits are set');
    if ((second & MASKED) === 0) throw new ProtocolError('a frame of a client must be masked');
    const length = payloadLength(bytes, second & 0x7f);
    if (length === undefined) return 0;
    const headBytes = length.headBytes + MASK_BYTES;
    if (opcode >= Opcode.close && (length.bytes > MAX_CONTROL_BYTES || !isFinal))
      throw new ProtocolError('a control frame is too long or fragmented');
    if (bytes.length < headBytes + (opcode >= Opcode.close ? length.bytes : 0)) return 0;
    this.#mask = Buffer.from(bytes.subarray(length.headBytes, headBytes));
    this.#maskAt = 0;
    if (opcode < Opcode.close) {
      this.#beginData(opcode, isFinal, length.bytes);
      return headBytes;
    }
    const payload = Buffer.from(bytes.subarray(headBytes, headBytes + length.bytes));
    this.#unmask(payload);
    this.#control(opcode, payload);
    return headBytes + length.bytes;
  }

  #beginData(opcode: number, isFinal: boolean, bytes: number): void {
    if (opcode > Opcode.binary) throw new ProtocolError(`unknown opcode ${opcode}`);
    if ((opcode === Opcode.continuation) !== this.#isFragmented)
      throw new ProtocolError('a message begins or goes on out of turn');
    this.#isFragmented = !isFinal;
    this.#remaining = bytes;
  }

  #control(opcode: number, payload: Buffer): void {
    if (opcode === Opcode.ping) return this.#sink.ping(payload);
    if (opcode === Opcode.pong) return undefined;
    if (opcode !== Opcode.close) throw new ProtocolError(`unknown opcode ${opcode}`);
    this.#isClosed = true;
    return this.#sink.close();
  }

  #unmask(bytes: Buffer): void {
    const mask = this.#mask;
    for (let i = 0; i < bytes.length; i++) bytes[i] = (bytes[i] ?? 0) ^ (mask[(this.#maskAt + i) & 3] ?? 0);
    this.#maskAt = (this.#maskAt + bytes.length) & 3;
  }
}

/** Returns the length of a payload; undefined when not all of its bytes are there. */
function payloadLength(
  bytes: Buffer,
  short: number,
): { readonly headBytes: number; readonly bytes: number } | undefined {
  if (short < 126) return { headBytes: 2, bytes: short };
  if (short === 126) return bytes.length < 4 ? undefined : { headBytes: 4, bytes: bytes.readUInt16BE(2) };
  if (bytes.length < 10) return undefined;
  const long = bytes.readBigUInt64BE(2);
  if (long > BigInt(Number.MAX_SAFE_INTEGER)) throw new ProtocolError('a frame is too long');
  return { headBytes: 10, bytes: Number(long) };
}
