/**
 * Counts the fields of a message before it is decoded: each of them becomes an object, and one of two bytes takes a
 * hundred and sixty in memory, so 16 MiB of them would take 1.3 GB and hold up all other work for five seconds.
 */
import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { EngineError } from '../../errors/engine-error.js';

/** The graph of a build with ten thousand steps has about so many. */
const MAX_FIELDS = 300_000;
/** The messages that clients send are not nested so deep. */
const MAX_DEPTH = 16;

/** Returns what the bytes of a field are a message of; undefined for one that is no message. */
type Nested = (field: number) => Nested | undefined;

/** @throws EngineError invalid for a message of too many fields; any error for bytes that are none. */
export function checkFieldCount(schema: DescMessage, bytes: Uint8Array): void {
  const left = countDown(fieldsOf(schema), bytes, MAX_FIELDS, MAX_DEPTH);
  if (left < 0) throw new EngineError('invalid', `a message of the client has more than ${MAX_FIELDS} fields`);
}

/** Returns how many fields there may still be behind this message; below 0 there were too many. */
function countDown(nested: Nested, bytes: Uint8Array, most: number, depth: number): number {
  const reader = new BinaryReader(bytes);
  let left = most;
  while (reader.pos < reader.len && left >= 0) {
    left--;
    const [number, wireType] = reader.tag();
    const inner = wireType === WireType.LengthDelimited && depth > 0 ? nested(number) : undefined;
    if (inner) left = countDown(inner, reader.bytes(), left, depth - 1);
    else reader.skip(wireType, number);
  }
  return left;
}

function fieldsOf(schema: DescMessage): Nested {
  return (number) => {
    const field = schema.fields.find((one) => one.number === number);
    return field && insideOf(field);
  };
}

function insideOf(field: DescField): Nested | undefined {
  const { message } = field;
  if (!message) return undefined;
  // An entry of a map has its value in the second field.
  return field.fieldKind === 'map' ? (number) => (number === 2 ? fieldsOf(message) : undefined) : fieldsOf(message);
}
