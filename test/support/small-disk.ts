/** A file system of some MiB that a test can fill to the last block. */
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Cleanup } from './cleanup.js';

/** From large to small, so that it is fast and nothing is left. */
const PIECES = [1 << 20, 4096, 1].map((bytes) => Buffer.alloc(bytes, 'x'));

export class SmallDisk {
  private constructor(readonly path: string) {}

  /** ext4 in a file, or a tmpfs where the machine cannot mount such. `cleanup` unmounts and deletes it. */
  static make(cleanup: Cleanup, megabytes: number): SmallDisk {
    const dir = mkdtempSync(join(tmpdir(), 'small-disk-'));
    cleanup.add(async () => rmSync(dir, { recursive: true, force: true }));
    const [file, path] = [join(dir, 'image'), join(dir, 'at')];
    mkdirSync(path);
    try {
      execFileSync('truncate', ['-s', `${megabytes}M`, file]);
      execFileSync('mkfs.ext4', ['-q', '-F', '-m', '0', file], { stdio: 'pipe' });
      execFileSync('mount', ['-o', 'loop', file, path], { stdio: 'pipe' });
    } catch {
      execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'small-disk', path]);
    }
    cleanup.add(async () => void execFileSync('umount', ['-l', path]));
    return new SmallDisk(path);
  }

  /** Takes what is left; to be called again when something may have been given back. */
  fill(): void {
    const fd = openSync(join(this.path, 'fill'), 'a');
    try {
      for (const piece of PIECES) {
        try {
          for (;;) writeSync(fd, piece);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
        }
      }
    } finally {
      closeSync(fd);
    }
  }

  /** Gives it back. */
  free(): void {
    rmSync(join(this.path, 'fill'), { force: true });
  }
}
