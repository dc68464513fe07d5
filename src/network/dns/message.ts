/** DNS messages (RFC 1035) as far as a resolver between clients and servers has to know them. */

export const TYPE = { a: 1, ptr: 12, aaaa: 28, opt: 41, any: 255 } as const;
export const RCODE = { ok: 0, formatError: 1, serverFailure: 2, nameError: 3, notImplemented: 4 } as const;

export interface Query {
  /** The whole message. */
  readonly bytes: Buffer;
  readonly id: number;
  /** Lower case, without the final dot. */
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
const CLASS_IN = 1;
const FLAG_RESPONSE = 0x8000;
const FLAG_TRUNCATED = 0x0200;
const FLAG_RECURSION_DESIRED = 0x0100;
const FLAG_RECURSION_AVAILABLE = 0x0080;
const OPCODE_MASK = 0x7800;
const POINTER_TO_QUESTION = 0xc00c;
const CLASSIC_DATAGRAM_BYTES = 512;
/** What passes every link without fragments. */
const EDNS_BYTES = 1232;
const MAX_NAME_BYTES = 255;
const TTL_SECONDS = 600;

/** Parses a question; 'bad' for what is none, undefined for what must not be answered at all. */
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
  return { bytes, id: bytes.readUInt16BE(0), name: labels.join('.').toLowerCase(), type: isInternet ? bytes.readUInt16BE(at) : 0, questionEnd, ednsBytes: ednsBytes(bytes, questionEnd) };
}

/** A query has only additional records after its question, and of these OPT alone says something to us. */
function ednsBytes(bytes: Buffer, questionEnd: number): number | undefined {
  const hasOthers = bytes.readUInt16BE(6) !== 0 || bytes.readUInt16BE(8) !== 0;
  if (hasOthers || bytes.readUInt16BE(10) === 0 || bytes.length < questionEnd + 11) return undefined;
  const isOpt = bytes[questionEnd] === 0 && bytes.readUInt16BE(questionEnd + 1) === TYPE.opt;
  return isOpt ? Math.max(bytes.readUInt16BE(questionEnd + 3), CLASSIC_DATAGRAM_BYTES) : undefined;
}

/** The reply to a query, cut to what the client takes unless it comes over a stream. */
export function buildReply(query: Query, rcode: number, answers: readonly Answer[], isStream: boolean): Buffer {
  const limit = isStream ? 0xffff : (query.ednsBytes ?? CLASSIC_DATAGRAM_BYTES);
  const opt = query.ednsBytes === undefined ? Buffer.alloc(0) : optRecord();
  let size = query.questionEnd + opt.length;
  const taken = answers.filter(({ data }) => (size += 12 + data.length) <= limit);
  const isCut = taken.length < answers.length;
  const reply = Buffer.concat([query.bytes.subarray(0, query.questionEnd), ...taken.map(record), opt]);
  const flags = FLAG_RESPONSE | (query.bytes.readUInt16BE(2) & FLAG_RECURSION_DESIRED) | FLAG_RECURSION_AVAILABLE | (isCut ? FLAG_TRUNCATED : 0) | rcode;
  reply.writeUInt16BE(flags, 2);
  reply.writeUInt16BE(taken.length, 6);
  reply.writeUInt16BE(0, 8);
  reply.writeUInt16BE(opt.length === 0 ? 0 : 1, 10);
  return reply;
}

/** The reply to something that could not be read: its header alone. */
export function formatErrorReply(bytes: Buffer): Buffer {
  const reply = Buffer.alloc(HEADER_BYTES);
  bytes.copy(reply, 0, 0, 2);
  reply.writeUInt16BE(FLAG_RESPONSE | FLAG_RECURSION_AVAILABLE | RCODE.formatError, 2);
  return reply;
}

/** True when `reply` answers the question of `query`, whatever its ID: a forged or late one is about something else. */
export function answersQuestion(reply: Buffer, query: Query): boolean {
  if (reply.length < HEADER_BYTES || (reply.readUInt16BE(2) & FLAG_RESPONSE) === 0) return false;
  // Refusals may leave the question out.
  if (reply.readUInt16BE(4) === 0) return true;
  const asked = query.bytes.subarray(HEADER_BYTES, query.questionEnd);
  return reply.subarray(HEADER_BYTES, query.questionEnd).toString('latin1').toLowerCase() === asked.toString('latin1').toLowerCase();
}

/** A name as records hold it. Labels longer than 63 bytes do not come from our own networks. */
export function encodeName(name: string): Buffer {
  return Buffer.concat([
    ...name.split('.').map((label) => {
      const bytes = Buffer.from(label, 'latin1').subarray(0, 63);
      return Buffer.concat([Buffer.of(bytes.length), bytes]);
    }),
    Buffer.of(0),
  ]);
}

function record({ type, data }: Answer): Buffer {
  const head = Buffer.alloc(12);
  head.writeUInt16BE(POINTER_TO_QUESTION, 0);
  head.writeUInt16BE(type, 2);
  head.writeUInt16BE(CLASS_IN, 4);
  head.writeUInt32BE(TTL_SECONDS, 6);
  head.writeUInt16BE(data.length, 10);
  return Buffer.concat([head, data]);
}

function optRecord(): Buffer {
  const opt = Buffer.alloc(11);
  opt.writeUInt16BE(TYPE.opt, 1);
  opt.writeUInt16BE(EDNS_BYTES, 3);
  return opt;
}
