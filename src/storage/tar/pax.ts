/** Reads extended headers: PAX records (POSIX.1-2017 pax, "pax Header Block") about one entry. */
import { invalid } from '../../errors/engine-error.js';
import type { TarHeader } from './header.js';

const XATTR_PREFIX = 'SCHILY.xattr.';

/** The extended headers before an entry say this about it; for undefined members, the entry's own header counts. */
export interface Extended {
  path?: string;
  linkPath?: string;
  sizeBytes?: number;
  uid?: number;
  gid?: number;
  mtimeSeconds?: number;
  mtimeNanoseconds?: number;
  /** Attributes by name; the last record of a name wins. */
  xattrs?: Map<string, Buffer>;
}

/** Reads the records of a type `x` body. @throws EngineError invalid for malformed records and sparse files. */
export function readPax(body: Buffer): Extended {
  const extended: Extended = {};
  for (let at = 0; at < body.length;) {
    const space = body.indexOf(0x20, at);
    const lengthText = space < 0 ? '' : body.toString('latin1', at, Math.min(space, at + 8));
    const end = at + Number(lengthText);
    const equals = body.indexOf(0x3d, space);
    if (!/^[1-9]\d*$/.test(lengthText) || end > body.length || equals < 0 || equals >= end || body[end - 1] !== 0x0a) {
      throw invalid('tar has a malformed PAX record', { code: 'TAR_PAX' });
    }
    apply(extended, body.toString('latin1', space + 1, equals), body.subarray(equals + 1, end - 1));
    at = end;
  }
  return extended;
}

function apply(extended: Extended, key: string, value: Buffer): void {
  if (key.startsWith('GNU.sparse.'))
    throw invalid('tar has a sparse file, which is not supported', { code: 'TAR_SPARSE' });
  if (key.startsWith(XATTR_PREFIX)) {
    extended.xattrs ??= new Map();
    extended.xattrs.set(key.slice(XATTR_PREFIX.length), Buffer.from(value));
    return;
  }
  if (!KEYS.has(key) || value.length === 0) return; // an empty value leaves the field to the header
  const text = value.toString('latin1');
  if (text.includes('\0')) throw invalid(`tar has a NUL in the PAX record ${key}`, { code: 'TAR_PAX' });
  switch (key) {
    case 'path':
      extended.path = text;
      return;
    case 'linkpath':
      extended.linkPath = text;
      return;
    case 'size':
      extended.sizeBytes = integer(key, text);
      return;
    case 'uid':
      extended.uid = integer(key, text);
      return;
    case 'gid':
      extended.gid = integer(key, text);
      return;
    default:
      time(extended, text);
  }
}

const KEYS = new Set(['path', 'linkpath', 'size', 'uid', 'gid', 'mtime']);

function integer(key: string, text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value))
    throw invalid(`tar has a malformed PAX record ${key}`, { code: 'TAR_PAX' });
  return value;
}

/** Reads seconds with a fraction of any length, of which nine digits count. */
function time(extended: Extended, text: string): void {
  const match = /^(-?)(\d{1,15})(?:\.(\d*))?$/.exec(text);
  if (!match) throw invalid('tar has a malformed PAX record mtime', { code: 'TAR_PAX' });
  const [, sign, whole, fraction = ''] = match;
  const seconds = Number(whole);
  const nanoseconds = Number(fraction.slice(0, 9).padEnd(9, '0'));
  const before = sign === '-' && nanoseconds > 0;
  extended.mtimeSeconds = (sign === '-' ? -seconds : seconds) - (before ? 1 : 0);
  extended.mtimeNanoseconds = before ? 1_000_000_000 - nanoseconds : nanoseconds;
}

/** Overwrites the entry's own header with what the extended headers say. */
export function applyExtended(header: TarHeader, extended: Extended): void {
  header.name = extended.path ?? header.name;
  header.linkName = extended.linkPath ?? header.linkName;
  header.sizeBytes = extended.sizeBytes ?? header.sizeBytes;
  header.uid = extended.uid ?? header.uid;
  header.gid = extended.gid ?? header.gid;
  if (extended.mtimeSeconds !== undefined) {
    header.mtimeSeconds = extended.mtimeSeconds;
    header.mtimeNanoseconds = extended.mtimeNanoseconds ?? 0;
  }
}
