/**
 * Records of what is true only while the machine runs, each beside a durable one elsewhere. They survive a kill of the
 * daemon and cost no sync: what a power cut leaves of one, whatever that is, does not count, because it names the boot.
 * Nor does one count after its durable record was written again, because it names the file that this was.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { temporaryPath } from '../sys/files/durable-file.js';
import { isInMemory } from '../sys/files/memory-files.js';
import { isLong } from '../text/json-pieces.js';
import { longRecordText, readRecord, recordText } from './record-store.js';

interface RunRecord {
  readonly boot: string;
  readonly on: string;
  readonly value: unknown;
}

/** In memory, writing so much takes some ten microseconds, and two turns of the thread pool take ten times as long. */
const AT_ONCE_CHARACTERS = 64 << 10;

const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();

/**
 * Writes a record that counts instead of the durable one until the next of these, or until that is written again. A
 * kill leaves the old or the new one. Nobody may change the value.
 * @param on what `identityOf` says of the durable record.
 * @throws the errno error of the file system.
 */
export async function writeRunRecord(path: string, on: string, value: unknown): Promise<void> {
  const record: RunRecord = { boot, on, value };
  const text = isLong(value) ? longRecordText(record) : recordText(record);
  const temp = temporaryPath(path);
  const options = { mode: 0o600, flag: 'wx' };
  try {
    if (typeof text === 'string' && text.length <= AT_ONCE_CHARACTERS && isInMemory(dirname(path))) {
      writeFileSync(temp, text, options);
      renameSync(temp, path);
    } else {
      await writeFile(temp, text, options);
      await rename(temp, path);
    }
  } catch (error) {
    await rm(temp, { force: true });
    throw error;
  }
}

/** Reads what `writeRunRecord` wrote of this durable record; undefined when that counts itself. */
export async function readRunRecord(path: string, durable: string): Promise<unknown> {
  const record = (await readRecord(path).catch(() => undefined)) as Partial<RunRecord> | null | undefined;
  if (record?.boot !== boot) return undefined;
  return record.on === (await identityOf(durable)) ? record.value : undefined;
}

/**
 * Returns what no two of the files have that replace each other under a name.
 * @throws the errno error of the file system, also without the file.
 */
export async function identityOf(path: string): Promise<string> {
  const { ino, mtimeNs } = await stat(path, { bigint: true });
  return `${ino}-${mtimeNs}`;
}
