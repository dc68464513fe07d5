/** Reads and writes DNS messages (RFC 1035), as far as a resolver between clients and servers needs it. */

export const TYPE = { a: 1, ptr: 12, aaaa: 28, opt: 41, any: 255 } as const;
export const RCODE = { ok: 0, formatError: 1, serverFailure: 2, nameError: 3, notImplemented: 4 } as const;

export interface Query {
  /** The whole message. */
  readonly bytes: Buffer;
  readonly id: number;
  /** In lower case, without the final dot. */
  readonly name: string;
  readonly type: number;
  /** End of the question section. */
  readonly questionEnd: number;
  /** Largest datagram that the client takes; undefined when it does not know EDNS. */
  readonly ednsBytes: number | undefined;
}

/** Data of an answer to the question's own name. */
export interface Answer {
  readonly type: number;
  readonly data: Buffer;
}

const HEADER_BYTES = 12;
/** A record begins with pointer to the name, type, class, time to live and length. */
const RECORD_HEAD_BYTES = 12;
const OPT_BYTES = 11;
const MAX_MESSAGE_BYTES = 0xffff;
const CLASS_IN = 1;
const FLAG_RESPONSE = 0x8000;
const FLAG_TRUNCATED = 0x0200;
const FLAG_RECURSION_DESIRED = 0x0100;
const FLAG_RECURSION_AVAILABLE = 0x0080;
const OPCODE_MASK = 0x7800;
const POINTER_TO_QUESTION = 0xc00c;
const CLASSIC_DATAGRAM_BYTES = 512;
/** A datagram of this size passes every link without fragments. */
const EDNS_BYTES = 1232;
const MAX_NAME_BYTES = 255;
const TTL_SECONDS = 600;

/** Parses a question. Returns 'bad' for a malformed one, undefined for a message that must not be answered at all. */
export function parseQuery(bytes: Buffer): Query | 'bad' | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const flags = bytes.readUInt16BE(2);
  if ((flags & FLAG_RESPONSE) !== 0) return undefined;
  if ((flags & OPCODE_MASK) !== 0 || bytes.readUInt16BE(4) !== 1) return 'bad';
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (;;) {
    const length = bytes[at];
    if (length === undefined || length > 63 || at > HEADER_BYTES + MAX_NAME_BYTES) return 'bad';
    at++;
    if (length === 0) break;
    labels.push(bytes.toString('latin1', at, at + length));
    at += length;
  }
  if (at + 4 > bytes.length) return 'bad';
  const questionEnd = at + 4;
  const isInternet = bytes.readUInt16BE(at + 2) === CLASS_IN;
  return {
    bytes,
    id: bytes.readUInt16BE(0),
    name: labels.join('.').toLowerCase(),
    type: isInternet ? bytes.readUInt16BE(at) : 0,
    questionEnd,
    ednsBytes: ednsBytes(bytes, questionEnd),
  };
}

/** Returns the client's limit from the OPT record; the other additional records of a query mean nothing to us. */
function ednsBytes(bytes: Buffer, questionEnd: number): number | undefined {
  const hasOthers = bytes.readUInt16BE(6) !== 0 || bytes.readUInt16BE(8) !== 0;
  if (hasOthers || bytes.readUInt16BE(10) === 0 || bytes.length < questionEnd + 11) return undefined;
  const isOpt = bytes[questionEnd] === 0 && bytes.readUInt16BE(questionEnd + 1) === TYPE.opt;
  return isOpt ? Math.max(bytes.readUInt16BE(questionEnd + 3), CLASSIC_DATAGRAM_BYTES) : undefined;
}

/**
 * Writes the reply to a query, cut to the free room and, unless it comes over a stream, to what the client takes.
 * Returns its length.
 */
export function writeReply(
  into: Buffer,
  query: Query,
  rcode: number,
  answers: readonly Answer[],
  isStream: boolean,
): number {
  const hasOpt = query.ednsBytes !== undefined;
  const limit =
    (isStream ? into.length : Math.min(into.length, query.ednsBytes ?? CLASSIC_DATAGRAM_BYTES)) -
    (hasOpt ? OPT_BYTES : 0);
  const flags =
    FLAG_RESPONSE | (query.bytes.readUInt16BE(2) & FLAG_RECURSION_DESIRED) | FLAG_RECURSION_AVAILABLE | rcode;
  query.bytes.copy(into, 0, 0, query.questionEnd);
  let at = query.questionEnd;
  let count = 0;
  for (const { type, data } of answers) {
    if (at + RECORD_HEAD_BYTES + data.length > limit) break;
    at = writeRecord(into, at, type, data);
    count++;
  }
  into.writeUInt16BE(count < answers.length ? flags | FLAG_TRUNCATED : flags, 2);
  into.writeUInt16BE(count, 6);
  into.writeUInt16BE(0, 8);
  into.writeUInt16BE(hasOpt ? 1 : 0, 10);
  return hasOpt ? at + OPT_RECORD.copy(into, at) : at;
}

/** Does the same as `writeReply`, in a buffer of its own. */
export function buildReply(query: Query, rcode: number, answers: readonly Answer[], isStream: boolean): Buffer {
  return Buffer.from(scratch.subarray(0, writeReply(scratch, query, rcode, answers, isStream)));
}

/** Turns a message that could not be read into its own reply, which is the header alone. Returns its length. */
export function writeFormatError(message: Buffer): number {
  message.fill(0, 2, HEADER_BYTES);
  message.writeUInt16BE(FLAG_RESPONSE | FLAG_RECURSION_AVAILABLE | RCODE.formatError, 2);
  return HEADER_BYTES;
}

/**
 * Tells whether `reply` answers the question of `query`, whatever its ID: a forged or late reply is about another
 * question.
 */
export function answersQuestion(reply: Buffer, query: Query): boolean {
  if (reply.length < HEADER_BYTES || (reply.readUInt16BE(2) & FLAG_RESPONSE) === 0) return false;
  // Refusals may leave the question out.
  if (reply.readUInt16BE(4) === 0) return true;
  const asked = query.bytes.subarray(HEADER_BYTES, query.questionEnd);
  return (
    reply.subarray(HEADER_BYTES, query.questionEnd).toString('latin1').toLowerCase() ===
    asked.toString('latin1').toLowerCase()
  );
}

/** Encodes a name as records hold it. Labels longer than 63 bytes do not come from our own networks. */
export function encodeName(name: string): Buffer {
  return Buffer.concat([
    ...name.split('.').map((label) => {
      const bytes = Buffer.from(label, 'latin1').subarray(0, 63);
      return Buffer.concat([Buffer.of(bytes.length), bytes]);
    }),
    Buffer.of(0),
  ]);
}

/** Writes a record of the question's own name. Returns where it ends. */
function writeRecord(into: Buffer, at: number, type: number, data: Buffer): number {
  into.writeUInt16BE(POINTER_TO_QUESTION, at);
  into.writeUInt16BE(type, at + 2);
  into.writeUInt16BE(CLASS_IN, at + 4);
  into.writeUInt32BE(TTL_SECONDS, at + 6);
  into.writeUInt16BE(data.length, at + 10);
  return at + RECORD_HEAD_BYTES + data.copy(into, at + RECORD_HEAD_BYTES);
}

/** An answer with EDNS ends with this record. */
const OPT_RECORD = Buffer.alloc(OPT_BYTES);
OPT_RECORD.writeUInt16BE(TYPE.opt, 1);
OPT_RECORD.writeUInt16BE(EDNS_BYTES, 3);

const scratch = Buffer.alloc(MAX_MESSAGE_BYTES);
