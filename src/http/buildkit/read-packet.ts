/** Packets of a transfer of files by the library for messages, which refuses texts that are not UTF-8. */
import { isUtf8 } from 'node:buffer';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { type EngineError, invalid, isEngineError } from '../../errors/engine-error.js';
import { decode } from './grpc-messages.js';
import { type Packet, PacketSchema, StatSchema } from './proto/gen/session_pb.js';

const STAT = PacketSchema.field.stat.number;
const PATH = StatSchema.field.path.number;
const TARGET = StatSchema.field.linkname.number;
/** Paths of a file system are not longer. */
const MAX_SHOWN_BYTES = 4096;
/** Characters that a shell would not show as they are. */
const SPECIAL = /[^ -~]|['"\\]/g;

/** @throws EngineError invalid for a name that is not UTF-8, which is in the message as a shell takes it. */
export function readPacket(message: Buffer): Packet {
  try {
    return decode(PacketSchema, message);
  } catch (error) {
    throw isEngineError(error) ? error : (badName(message, error) ?? error);
  }
}

/** The protocol has texts where the file systems of clients have bytes. */
function badName(message: Buffer, cause: unknown): EngineError | undefined {
  const stat = bytesOf(message, STAT);
  const path = bytesOf(stat, PATH);
  const target = bytesOf(stat, TARGET);
  if (!isUtf8(path)) return invalid(`the name of a file in the context is not UTF-8: ${escaped(path)}`, { cause });
  if (isUtf8(target)) return undefined;
  return invalid(`the target of the link ${escaped(path)} in the context is not UTF-8: ${escaped(target)}`, { cause });
}

/** Returns the bytes of a field; none for a message that has no such field, or is broken. */
function bytesOf(message: Uint8Array, number: number): Uint8Array {
  const reader = new BinaryReader(message);
  try {
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (field === number && wireType === WireType.LengthDelimited) return reader.bytes();
      reader.skip(wireType, field);
    }
  } catch {
    // The reader before has said what is wrong.
  }
  return new Uint8Array();
}

function escaped(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.subarray(0, MAX_SHOWN_BYTES)).toString('latin1');
  return `$'${text.replaceAll(SPECIAL, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`)}'`;
}
