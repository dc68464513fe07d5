/** Writes tar headers: POSIX ustar blocks, with PAX records for what does not fit into them. */
import { BLOCK_SIZE } from './header.js';

export interface EntryHeader {
  readonly type: '0' | '1' | '2' | '3' | '4' | '5' | '6';
  /** Byte strings. The name of a directory ends in a slash. */
  readonly name: string;
  readonly linkName?: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  readonly mtimeSeconds: number;
  readonly deviceMajor?: number;
  readonly deviceMinor?: number;
  readonly xattrs?: readonly (readonly [name: string, value: Buffer])[];
}

const MAX_7_DIGITS = 0o7777777;
const MAX_11_DIGITS = 0o77777777777;

/**
 * Returns the header block of an entry, after its extended header if it needs one.
 * @param into memory for the block: what is returned is valid until it is used again.
 */
export function encodeHeader(entry: EntryHeader, into?: Buffer): Buffer {
  const records: Buffer[] = [];
  const record = (key: string, value: Buffer | string): void => void records.push(encodeRecord(key, value));
  // Sorted by the keys, so that equal entries give equal bytes.
  for (const [name, value] of entry.xattrs ?? []) record(`SCHILY.xattr.${name}`, value);
  if (entry.gid > MAX_7_DIGITS) record('gid', String(entry.gid));
  if (!fitsText(entry.linkName ?? '')) record('linkpath', entry.linkName ?? '');
  if (!fits11(entry.mtimeSeconds)) record('mtime', String(entry.mtimeSeconds));
  if (!fitsText(entry.name)) record('path', entry.name);
  if (!fits11(entry.sizeBytes)) record('size', String(entry.sizeBytes));
  if (entry.uid > MAX_7_DIGITS) record('uid', String(entry.uid));
  const main = encodeBlock(entry, entry.type, into);
  if (records.length === 0) return main;
  const body = Buffer.concat(records);
  const base = entry.name.replace(/\/$/, '').replace(/^.*\//s, '');
  const extension = encodeBlock(
    { type: '0', name: `PaxHeaders.0/${base}`, mode: 0, uid: 0, gid: 0, sizeBytes: body.length, mtimeSeconds: 0 },
    'x',
  );
  return Buffer.concat([extension, body, padding(body.length), main]);
}

/** Returns the zero bytes that fill the last block after content of this length. */
export function padding(length: number): Buffer {
  return ZEROS.subarray(0, -length & (BLOCK_SIZE - 1));
}

/** Two zero blocks. */
export const END_OF_ARCHIVE = Buffer.alloc(2 * BLOCK_SIZE);
const ZEROS = Buffer.alloc(BLOCK_SIZE);

/** Behind a link's name: the format and its version. */
const FORMAT = 'ustar\u000000';
/** The checksum counts itself as eight spaces. */
const CHECKSUM_SUM = 8 * 0x20;

/** The checksum is that of the bytes that are written, since all others are zeros: a layer has many headers. */
function encodeBlock(
  entry: Omit<EntryHeader, 'type'> & { readonly type: string },
  type: string,
  into?: Buffer,
): Buffer {
  const block = into?.fill(0) ?? Buffer.alloc(BLOCK_SIZE);
  const sum =
    CHECKSUM_SUM +
    text(block, 0, 100, entry.name) +
    octal(block, 100, 8, entry.mode) +
    octal(block, 108, 8, entry.uid > MAX_7_DIGITS ? 0 : entry.uid) +
    octal(block, 116, 8, entry.gid > MAX_7_DIGITS ? 0 : entry.gid) +
    octal(block, 124, 12, fits11(entry.sizeBytes) ? entry.sizeBytes : 0) +
    octal(block, 136, 12, fits11(entry.mtimeSeconds) ? entry.mtimeSeconds : 0) +
    text(block, 156, 1, type) +
    text(block, 157, 100, entry.linkName ?? '') +
    text(block, 257, 8, FORMAT) +
    octal(block, 329, 8, entry.deviceMajor ?? 0) +
    octal(block, 337, 8, entry.deviceMinor ?? 0);
  octal(block, 148, 7, sum);
  block[155] = 0x20;
  return block;
}

/** Writes as much of a byte string as there is room for, and returns the sum of the bytes. */
function text(block: Buffer, at: number, room: number, bytes: string): number {
  const length = Math.min(bytes.length, room);
  let sum = 0;
  for (let index = 0; index < length; index++) {
    const byte = bytes.charCodeAt(index) & 0xff;
    block[at + index] = byte;
    sum += byte;
  }
  return sum;
}

/** Writes a number with a zero byte behind it, and returns the sum of the bytes. */
function octal(block: Buffer, at: number, length: number, value: number): number {
  let rest = value;
  let sum = 0;
  for (let place = at + length - 2; place >= at; place--) {
    const digit = 0x30 + (rest % 8);
    block[place] = digit;
    sum += digit;
    rest = Math.floor(rest / 8);
  }
  return sum;
}

function fits11(value: number): boolean {
  return value >= 0 && value <= MAX_11_DIGITS;
}

function fitsText(text: string): boolean {
  // oxlint-disable-next-line no-control-regex -- the range of ASCII
  return text.length <= 100 && /^[\u0001-\u007f]*$/.test(text);
}

/** Encodes `<length of the record> <key>=<value>\n`, where the length counts its own digits. */
function encodeRecord(key: string, value: Buffer | string): Buffer {
  const bytes = typeof value === 'string' ? Buffer.from(value, 'latin1') : value;
  const rest = key.length + bytes.length + 3;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length = rest + String(length).length;
  return Buffer.concat([Buffer.from(`${length} ${key}=`, 'latin1'), bytes, NEWLINE]);
}

const NEWLINE = Buffer.from('\n');
