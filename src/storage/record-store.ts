/**
 * Keeps small versioned JSON documents on disk. Each is replaced as a whole: after a crash the file is the old or the
 * new one.
 */
import { readFile, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { dataLoss, messageOf } from '../errors/engine-error.js';
import { replaceFile, syncDirectory } from '../sys/files/durable-file.js';
import { isLong, jsonInTurns } from '../text/json-pieces.js';

/** Version of the envelope, not of the value in it. */
const VERSION = 1;

/**
 * Writes `value` to `path`; durable when the promise resolves. Concurrent writers of one path are safe, and the last
 * one to finish wins. The directory must exist.
 * @throws the errno error of the file system, with nothing changed.
 */
export async function writeRecord(path: string, value: unknown): Promise<void> {
  await replaceFile(path, recordText(value));
}

/** Does the same for a value that may be long, and that nobody changes. */
export async function writeFixedRecord(path: string, value: unknown): Promise<void> {
  await replaceFile(path, isLong(value) ? longRecordText(value) : recordText(value));
}

/** Yields the text of a record that is long, and that nobody changes meanwhile. */
export function longRecordText(value: unknown): AsyncIterable<string> {
  return jsonInTurns({ version: VERSION, value });
}

/** Returns the text of a record, for writers that make it durable themselves. */
export function recordText(value: unknown): string {
  return JSON.stringify({ version: VERSION, value });
}

/**
 * Reads what `writeRecord` wrote; undefined when there is none.
 * @param textOf reads the file, for those who read many of them.
 * @throws EngineError data-loss for a file that is damaged or of a newer version.
 */
export async function readRecord(
  path: string,
  textOf = (at: string): Promise<string> => readFile(at, 'utf8'),
): Promise<unknown> {
  let text: string;
  try {
    text = await textOf(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return parseRecord(path, text);
}

/**
 * Returns the value in the text of a record; `path` only names it in errors. @throws EngineError data-loss as
 * `readRecord`.
 */
export function parseRecord(path: string, text: string): unknown {
  let record: unknown;
  try {
    record = JSON.parse(text);
  } catch (error) {
    throw dataLoss(`record ${path} is damaged: ${messageOf(error)}`, { code: 'RECORD_DAMAGED', cause: error });
  }
  if (typeof record !== 'object' || record === null || !('version' in record) || !('value' in record)) {
    throw dataLoss(`record ${path} is damaged: not a record`, { code: 'RECORD_DAMAGED' });
  }
  if (record.version !== VERSION) {
    throw dataLoss(`record ${path} has version ${String(record.version)}, this daemon reads version ${VERSION}`, {
      code: 'RECORD_VERSION',
    });
  }
  return record.value;
}

/** Removes a record durably. Idempotent. */
export async function removeRecord(path: string): Promise<void> {
  await rm(path, { force: true });
  await syncDirectory(dirname(path));
}
