/**
 * The wire form of netlink(7): messages with attributes. Numbers are in the byte order of the host, little-endian here.
 */

/** One message to the kernel: type, flags beyond REQUEST and ACK, and what follows the header. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly body: Buffer;
}

export interface NetlinkAnswer {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  readonly payload: Buffer;
}

// linux/netlink.h
const NLM_F_REQUEST = 1;
const NLM_F_ACK = 4;
export const NLM_F_DUMP_INTR = 0x10;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_DUMP = 0x300;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;
const HEADER_BYTES = 16;
const ATTRIBUTE_HEADER_BYTES = 4;
const NLA_F_NESTED = 0x8000;
const NLA_TYPE_MASK = 0x3fff;

/** The bytes of a message. What is no dump asks for an acknowledgement, unless it `isSilent`. */
export function packMessage({ type, flags, body }: NetlinkMessage, sequence: number, isSilent = false): Buffer {
  const packet = Buffer.alloc(align(HEADER_BYTES + body.length));
  const isDump = (flags & NLM_F_DUMP) === NLM_F_DUMP && (flags & NLM_F_CREATE) === 0;
  packet.writeUInt32LE(HEADER_BYTES + body.length, 0);
  packet.writeUInt16LE(type, 4);
  packet.writeUInt16LE(NLM_F_REQUEST | (isDump || isSilent ? 0 : NLM_F_ACK) | flags, 6);
  packet.writeUInt32LE(sequence, 8);
  body.copy(packet, HEADER_BYTES);
  return packet;
}

/** The messages of one datagram; payloads are views into it. */
export function* messagesOf(datagram: Buffer): Generator<NetlinkAnswer> {
  for (let offset = 0; offset + HEADER_BYTES <= datagram.length;) {
    const size = datagram.readUInt32LE(offset);
    if (size < HEADER_BYTES) return;
    yield {
      type: datagram.readUInt16LE(offset + 4),
      flags: datagram.readUInt16LE(offset + 6),
      sequence: datagram.readUInt32LE(offset + 8),
      payload: datagram.subarray(offset + HEADER_BYTES, offset + size),
    };
    offset += align(size);
  }
}

export function attribute(type: number, value: Buffer): Buffer {
  const packed = Buffer.alloc(align(ATTRIBUTE_HEADER_BYTES + value.length));
  packed.writeUInt16LE(ATTRIBUTE_HEADER_BYTES + value.length, 0);
  packed.writeUInt16LE(type, 2);
  value.copy(packed, ATTRIBUTE_HEADER_BYTES);
  return packed;
}

export function textAttribute(type: number, value: string): Buffer {
  return attribute(type, Buffer.from(`${value}\0`));
}

export function nestedAttribute(type: number, children: readonly Buffer[]): Buffer {
  return attribute(type | NLA_F_NESTED, Buffer.concat(children));
}

export function u8Attribute(type: number, value: number): Buffer {
  return attribute(type, Buffer.of(value));
}

export function u16Attribute(type: number, value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return attribute(type, bytes);
}

export function u32Attribute(type: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return attribute(type, bytes);
}

/** The attributes after the first `offset` bytes of a payload. */
export function* attributesOf(payload: Buffer, offset: number): Generator<readonly [type: number, value: Buffer]> {
  while (offset + ATTRIBUTE_HEADER_BYTES <= payload.length) {
    const length = payload.readUInt16LE(offset);
    if (length < ATTRIBUTE_HEADER_BYTES) return;
    yield [
      payload.readUInt16LE(offset + 2) & NLA_TYPE_MASK,
      payload.subarray(offset + ATTRIBUTE_HEADER_BYTES, offset + length),
    ];
    offset += align(length);
  }
}

function align(size: number): number {
  return (size + 3) & ~3;
}
