/**
 * The two packets of a transfer of files that come once for each file and more: they are read and written here, because
 * the library for messages takes many times as long. The others are left to it.
 */
import { Packet_Type } from './proto/gen/session_pb.js';

// A field begins with its number times 8 and its kind: 0 for a number, 2 for bytes.
const TYPE = 0x08;
const ID = 0x18;
const DATA = 0x22;
/** A number has 7 bits in each byte, the lowest first, and the eighth bit where more follow. */
const MORE = 0x80;
const PIECE: number = Packet_Type.DATA;
/** Numbers in these packets have 32 bits. */
const MAX_NUMBER_BYTES = 5;

/** A piece of a file; an empty one is its end. */
export interface Piece {
  readonly id: number;
  /** A view of the message. */
  readonly data: Buffer;
}

/** Reads a packet with a piece of a file. Returns undefined for any other message, also for one that is broken. */
export function readPiece(message: Buffer): Piece | undefined {
  let type = 0;
  let id = 0;
  let data = message.subarray(0, 0);
  for (let at = 0; at < message.length;) {
    const field = message[at++];
    if (field !== TYPE && field !== ID && field !== DATA) return undefined;
    let value = 0;
    let byte = MORE;
    for (let bytes = 0; (byte & MORE) !== 0; bytes++) {
      const next = message[at++];
      if (next === undefined || bytes === MAX_NUMBER_BYTES) return undefined;
      byte = next;
      value += (byte & (MORE - 1)) * 2 ** (7 * bytes);
    }
    if (value >= 2 ** 32) return undefined;
    if (field === TYPE) type = value;
    else if (field === ID) id = value;
    else {
      if (value > message.length - at) return undefined;
      data = message.subarray(at, at + value);
      at += value;
    }
  }
  return type === PIECE ? { id, data } : undefined;
}

/** Returns the packet that asks for a file. */
export function requestPacket(id: number): Buffer {
  const bytes = [TYPE, Packet_Type.REQ, ID];
  let rest = id;
  for (; rest >= MORE; rest >>>= 7) bytes.push((rest & (MORE - 1)) | MORE);
  return Buffer.from([...bytes, rest]);
}
