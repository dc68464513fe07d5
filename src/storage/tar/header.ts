/**
 * Reads one tar header block: POSIX ustar, GNU and old forms (pax(1) of POSIX.1-2017, "Basic Tar Format" of GNU tar).
 */
import { invalid } from '../../errors/engine-error.js';

export const BLOCK_SIZE = 512;

/** The fields of a header, reused for every entry of a stream. Names are byte strings. */
export interface TarHeader {
  /** Type flag as a character. NUL, the old form, is a directory when the name ends in a slash, else a file. */
  type: string;
  name: string;
  linkName: string;
  /** Permission bits with setuid, setgid and sticky. */
  mode: number;
  uid: number;
  gid: number;
  sizeBytes: number;
  mtimeSeconds: number;
  mtimeNanoseconds: number;
  deviceMajor: number;
  deviceMinor: number;
}

export function emptyHeader(): TarHeader {
  return {
    type: '0',
    name: '',
    linkName: '',
    mode: 0,
    uid: 0,
    gid: 0,
    sizeBytes: 0,
    mtimeSeconds: 0,
    mtimeNanoseconds: 0,
    deviceMajor: 0,
    deviceMinor: 0,
  };
}

/** Reads the block at `at` into `header`. @throws EngineError invalid for anything that is not a tar header. */
export function readHeader(block: Buffer, at: number, header: TarHeader): void {
  checkSum(block, at);
  const posix = isText(block, at + 257, 'ustar\0');
  const type = block[at + 156] ?? 0;
  header.name = text(block, at, 100);
  if (posix && block[at + 345] !== 0) {
    // The star program keeps times in the last bytes of the prefix.
    const prefix = text(block, at + 345, isText(block, at + 508, 'tar\0') ? 131 : 155);
    header.name = `${prefix}/${header.name}`;
  }
  header.type = String.fromCharCode(type);
  header.mode = number(block, at + 100, 8, 'mode') & 0o7777;
  header.uid = number(block, at + 108, 8, 'uid');
  header.gid = number(block, at + 116, 8, 'gid');
  header.sizeBytes = number(block, at + 124, 12, 'size');
  header.mtimeSeconds = number(block, at + 136, 12, 'mtime');
  header.mtimeNanoseconds = 0;
  header.linkName = block[at + 157] === 0 ? '' : text(block, at + 157, 100);
  const device = type === 0x33 || type === 0x34;
  header.deviceMajor = device ? number(block, at + 329, 8, 'devmajor') : 0;
  header.deviceMinor = device ? number(block, at + 337, 8, 'devminor') : 0;
  if (header.sizeBytes < 0) throw invalid('tar header has a negative size', { code: 'TAR_HEADER' });
}

/** Tells whether a tar begins with these bytes. */
export function beginsTar(head: Buffer): boolean {
  if (head.length < BLOCK_SIZE) return false;
  if (isZeroBlock(head, 0)) return true;
  try {
    checkSum(head, 0);
    return true;
  } catch {
    return false;
  }
}

/** True for a block of zero bytes only, two of which end an archive. */
export function isZeroBlock(block: Buffer, at: number): boolean {
  if (block[at] !== 0) return false;
  for (let i = at + 1; i < at + BLOCK_SIZE; i++) if (block[i] !== 0) return false;
  return true;
}

function checkSum(block: Buffer, at: number): void {
  let unsigned = 256; // the field itself counts as eight spaces
  let above = 0;
  for (let i = at; i < at + 148; i++) {
    const byte = block[i] ?? 0;
    unsigned += byte;
    above += byte >> 7;
  }
  for (let i = at + 156; i < at + BLOCK_SIZE; i++) {
    const byte = block[i] ?? 0;
    unsigned += byte;
    above += byte >> 7;
  }
  const stored = number(block, at + 148, 8, 'checksum');
  // Some old programs summed signed characters.
  if (stored !== unsigned && stored !== unsigned - 256 * above)
    throw invalid('tar header has a wrong checksum', { code: 'TAR_HEADER' });
}

function isText(block: Buffer, at: number, expected: string): boolean {
  for (let i = 0; i < expected.length; i++) if (block[at + i] !== expected.charCodeAt(i)) return false;
  return true;
}

function text(block: Buffer, at: number, length: number): string {
  let end = at;
  while (end < at + length && block[end] !== 0) end++;
  return block.toString('latin1', at, end);
}

/** Reads octal with spaces or NULs around it, or base 256 when the first bit is set. */
function number(block: Buffer, at: number, length: number, field: string): number {
  const first = block[at] ?? 0;
  if (first & 0x80) return base256(block, at, length, field);
  let i = at;
  const end = at + length;
  while (i < end && (block[i] === 0x20 || block[i] === 0)) i++;
  let value = 0;
  for (; i < end; i++) {
    const digit = (block[i] ?? 0) - 0x30;
    if (digit < 0 || digit > 7) break;
    value = value * 8 + digit;
  }
  for (; i < end; i++) {
    if (block[i] !== 0x20 && block[i] !== 0)
      throw invalid(`tar header has a malformed ${field}`, { code: 'TAR_HEADER' });
  }
  return value;
}

function base256(block: Buffer, at: number, length: number, field: string): number {
  const first = block[at] ?? 0;
  const negative = (first & 0x40) !== 0;
  let value = negative ? first - 256 : first & 0x3f;
  for (let i = at + 1; i < at + length; i++) value = value * 256 + (block[i] ?? 0);
  if (!Number.isSafeInteger(value)) throw invalid(`tar header has a ${field} out of range`, { code: 'TAR_HEADER' });
  return value;
}
