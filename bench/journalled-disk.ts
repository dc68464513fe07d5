/**
 * A file system with a journal, for machines whose ext4 has none. Such an ext4 looks at each inode that was removed in
 * the last minutes before it makes a file, one by one (`recently_deleted` in the kernel): after the removal of many
 * files, making as many others takes ten times as long, or not, by the part of the disk where they come to lie.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';

/** It is in a sparse file. */
const MEGABYTES = 49_152;

export class JournalledDisk {
  readonly #directory = mkdtempSync(join(tmpdir(), 'journalled-disk-'));
  readonly path = join(this.#directory, 'at');

  constructor() {
    const file = join(this.#directory, 'image');
    mkdirSync(this.path);
    execFileSync('truncate', ['-s', `${MEGABYTES}M`, file]);
    execFileSync('mkfs.ext4', ['-q', '-E', 'lazy_itable_init=1,nodiscard', file], { stdio: 'pipe' });
    // Without a second copy of each file in memory.
    const device = execFileSync('losetup', ['--find', '--show', '--direct-io=on', file], { encoding: 'utf8' }).trim();
    try {
      execFileSync('mount', ['-o', 'noinit_itable', device, this.path], { stdio: 'pipe' });
    } finally {
      // As soon as it is no longer mounted.
      execFileSync('losetup', ['--detach', device], { stdio: 'pipe' });
    }
  }

  remove(): void {
    execFileSync('umount', ['-l', this.path]);
    rmSync(this.#directory, { recursive: true });
  }
}

/** Tells whether a directory is on an ext4 that has no journal. */
export function lacksJournal(directory: string): boolean {
  const { dev } = statSync(directory, { bigint: true });
  const major = Number((dev >> 8n) & 0xfffn);
  const minor = Number((dev & 0xffn) | ((dev >> 12n) & 0xfff00n));
  const link = `/sys/dev/block/${major}:${minor}`;
  if (!existsSync(link)) return false;
  const device = basename(readlinkSync(link));
  if (!existsSync(`/proc/fs/ext4/${device}`)) return false;
  const journals = existsSync('/proc/fs/jbd2') ? readdirSync('/proc/fs/jbd2') : [];
  return !journals.some((name) => name.startsWith(`${device}-`));
}
