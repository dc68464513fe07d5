/**
 * Records of what is true only while the machine runs, each beside a durable one elsewhere. They survive a kill of the
 * daemon and cost no sync: what a power cut leaves of one, whatever that is, does not count, because it names the boot.
 * Nor does one count after its durable record was written again, because it names the file that this was.
 */
import { readFileSync } from 'node:fs';
import { rename, rm, stat, writeFile } from 'node:fs/promises';
import { temporaryPath } from '../sys/files/durable-file.js';
import { readRecord, recordText } from './record-store.js';

interface RunRecord {
  readonly boot: string;
  readonly on: string;
  readonly value: unknown;
}

const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();

/**
 * Writes a record that counts instead of the durable one until the next of these; a kill leaves the old or the new one.
 * @throws the errno error of the file system, also without a durable record.
 */
export async function writeRunRecord(path: string, durable: string, value: unknown): Promise<void> {
  const record: RunRecord = { boot, on: await identityOf(durable), value };
  const temp = temporaryPath(path);
  try {
    await writeFile(temp, recordText(record), { mode: 0o600, flag: 'wx' });
    await rename(temp, path);
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

/** Returns what no two of the files have that replace each other under a name. */
async function identityOf(path: string): Promise<string> {
  const { ino, mtimeNs } = await stat(path, { bigint: true });
  return `${ino}-${mtimeNs}`;
}
