/** Messages of gRPC: their encoding, and their frames on a stream of HTTP/2. */
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import type { DescMessage, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import { EngineError, type ErrorKind } from '../../errors/engine-error.js';
import { checkFieldCount } from './field-count.js';

/** BuildKit takes messages up to this size. */
export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/** Clients take messages below 4 MiB; what is larger is sent in pieces of this size. */
export const PIECE_BYTES = 3 * 1024 * 1024;

const FRAME_BYTES = 5;
/** The fields of so few bytes cannot be many. */
const UNCOUNTED_BYTES = 64 * 1024;

export const GrpcCode = {
  ok: 0,
  cancelled: 1,
  unknown: 2,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  alreadyExists: 6,
  permissionDenied: 7,
  unimplemented: 12,
  unavailable: 14,
} as const;

/** Encodes a message. grpc-js wants a Buffer; this is a view of the encoder's bytes, not a copy. */
export function encode<Desc extends DescMessage>(schema: Desc, message: MessageInitShape<Desc>): Buffer {
  const bytes = toBinary(schema, create(schema, message));
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/**
 * Decodes a message; fields that our trimmed messages lack are dropped.
 * @throws EngineError invalid for one of too many fields; any error for bytes that are no message.
 */
export function decode<Desc extends DescMessage>(schema: Desc, bytes: Uint8Array): MessageShape<Desc> {
  if (bytes.length > UNCOUNTED_BYTES) checkFieldCount(schema, bytes);
  return fromBinary(schema, bytes, { readUnknownFields: false });
}

/** Puts a message into a frame. */
export function frame(message: Uint8Array): Buffer {
  const framed = Buffer.allocUnsafe(FRAME_BYTES + message.length);
  framed.writeUInt8(0, 0);
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, FRAME_BYTES);
  return framed;
}

/** Finds messages in pieces of a stream. It keeps the pieces of one unfinished message at most. */
export class FrameReader {
  #pieces: Buffer[] = [];
  #held = 0;
  /** Size of the frame that is coming; undefined while its head is incomplete. */
  #wanted: number | undefined;

  /**
   * Yields the messages that a piece completes.
   * @throws EngineError invalid for a message that is compressed or too long.
   */
  *push(piece: Buffer): Generator<Buffer> {
    this.#pieces.push(piece);
    this.#held += piece.length;
    for (;;) {
      if (this.#wanted === undefined) {
        if (this.#held < FRAME_BYTES) return;
        const head = this.#join();
        const length = head.readUInt32BE(1);
        if (head[0] !== 0 || length > MAX_MESSAGE_BYTES)
          throw new EngineError('invalid', `a message of the client cannot be read: it has ${length} bytes`);
        this.#wanted = FRAME_BYTES + length;
      }
      if (this.#held < this.#wanted) return;
      const bytes = this.#join();
      const message = bytes.subarray(FRAME_BYTES, this.#wanted);
      const rest = bytes.subarray(this.#wanted);
      this.#pieces = rest.length === 0 ? [] : [rest];
      this.#held -= this.#wanted;
      this.#wanted = undefined;
      yield message;
    }
  }

  #join(): Buffer {
    const [first] = this.#pieces;
    if (first !== undefined && this.#pieces.length === 1) return first;
    const joined = Buffer.concat(this.#pieces);
    this.#pieces = [joined];
    return joined;
  }
}

const KINDS = new Map<number, ErrorKind>([
  [GrpcCode.cancelled, 'cancelled'],
  [GrpcCode.invalidArgument, 'invalid'],
  [GrpcCode.deadlineExceeded, 'deadline'],
  [GrpcCode.notFound, 'not-found'],
  [GrpcCode.alreadyExists, 'conflict'],
  [GrpcCode.permissionDenied, 'forbidden'],
  [GrpcCode.unimplemented, 'not-implemented'],
  [GrpcCode.unavailable, 'unavailable'],
]);

/** Returns the error for a call that ended with a status other than OK. */
export function failedCall(code: number, message: string): EngineError {
  return new EngineError(KINDS.get(code) ?? 'internal', message, { details: { grpcCode: code } });
}
