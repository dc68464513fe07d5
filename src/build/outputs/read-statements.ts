/**
 * Worker task: reads the statements that a program has written about a result. The program is a client's choice, so
 * nothing of what it has left is believed: neither kinds of files, nor their number, nor their sizes, nor their text.
 */
import { closeSync, constants, lstatSync, openSync, opendirSync, readSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { dataLoss, invalid, isEngineError } from '../../errors/engine-error.js';
import { ownMember } from '../../text/own-member.js';
import { JsonScan } from '../../text/json-scan.js';
import { parseScannedJson } from '../../text/parse-json.js';

export interface ReadStatementsInput {
  /** A directory with nothing but statements, which nobody changes meanwhile. */
  readonly root: string;
  /** The directory that gets the predicates. */
  readonly into: string;
}

export interface ReadStatement {
  /** That of the statement. */
  readonly name: string;
  readonly predicateType: string;
  /** The file with the predicate, in the other directory. */
  readonly file: string;
  readonly sizeBytes: number;
}

const PREDICATE_TYPE = 'https://spdx.dev/Document';
/** As BuildKit has it. */
const MAX_BYTES = 40 << 20;
const MAX_BYTES_TOGETHER = 64 << 20;
const MAX_STATEMENTS = 1000;
/** Clients give a prefix and a platform to the name, and it must be one of a file still. */
const MAX_NAME_CHARS = 100;
const LIMITS = { bytes: MAX_BYTES, depth: 100, values: 2_000_000, members: 1_000_000 };
const PIECE_BYTES = 1 << 20;

/** @throws EngineError invalid, which names the file. */
export function readStatements({ root, into }: ReadStatementsInput): ReadStatement[] {
  const files = namesIn(root).map((name) => ({ name, sizeBytes: sizeOf(join(root, name), name) }));
  if (files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) > MAX_BYTES_TOGETHER)
    throw invalid(`the files of the scan exceed ${MAX_BYTES_TOGETHER} bytes`);
  return files.map(({ name, sizeBytes }, at) => {
    const { predicateType, predicate } = statementIn(readWhole(join(root, name), sizeBytes), name);
    const text = JSON.stringify(predicate);
    const file = `${at}.json`;
    writeFileSync(join(into, file), text, { flag: 'wx', mode: 0o600 });
    return { name, predicateType, file, sizeBytes: Buffer.byteLength(text) };
  });
}

function namesIn(root: string): string[] {
  const names: string[] = [];
  const directory = opendirSync(root);
  try {
    for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
      if (names.length === MAX_STATEMENTS) throw invalid(`the scan has left more than ${MAX_STATEMENTS} files`);
      if (entry.name.length > MAX_NAME_CHARS || entry.name.includes('\uFFFD'))
        throw invalid(`the scan has left a file with the invalid name ${shown(entry.name)}`);
      names.push(entry.name);
    }
  } finally {
    directory.closeSync();
  }
  return names.sort();
}

/** Looks before anything is opened: a device would do what opening it means, and a FIFO would wait for a writer. */
function sizeOf(path: string, name: string): number {
  const stat = lstatSync(path);
  if (!stat.isFile()) throw invalid(`${shown(name)} of the scan is not a regular file`);
  if (stat.size > MAX_BYTES) throw invalid(`${shown(name)} exceeds ${MAX_BYTES} bytes`);
  return stat.size;
}

function readWhole(path: string, sizeBytes: number): Buffer<ArrayBuffer> {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const bytes = Buffer.alloc(sizeBytes);
    for (let at = 0; at < sizeBytes;) {
      const length = readSync(fd, bytes, at, Math.min(PIECE_BYTES, sizeBytes - at), at);
      if (length === 0) throw dataLoss(`${path} is shorter than it was`);
      at += length;
    }
    return bytes;
  } finally {
    closeSync(fd);
  }
}

function statementIn(
  bytes: Buffer<ArrayBuffer>,
  name: string,
): { readonly predicateType: string; readonly predicate: unknown } {
  const value = parsed(bytes, name);
  const members = typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  const predicateType = ownMember(members, 'predicateType');
  if (predicateType !== PREDICATE_TYPE) {
    const type = shown(typeof predicateType === 'string' ? predicateType : '');
    throw invalid(`bundle entry ${type} of ${shown(name)} does not match required predicate type ${PREDICATE_TYPE}`);
  }
  return { predicateType, predicate: ownMember(members, 'predicate') ?? null };
}

function parsed(bytes: Buffer<ArrayBuffer>, name: string): unknown {
  try {
    const scan = new JsonScan(LIMITS);
    scan.take(bytes);
    return parseScannedJson({ bytes, isEmpty: scan.isEmpty, firstEnd: scan.firstEnd });
  } catch (error) {
    if (!isEngineError(error)) throw error;
    throw invalid(`cannot decode in-toto statement ${shown(name)}: ${error.message}`);
  }
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 200));
}
