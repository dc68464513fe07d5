/** A btrfs of its own, in a sparse file. Needs mkfs.btrfs (package btrfs-progs). */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export class BtrfsDisk {
  readonly #directory = mkdtempSync(join(tmpdir(), 'btrfs-disk-'));
  readonly path = join(this.#directory, 'at');

  /** @param options of the mount. */
  constructor(megabytes = 2048, options: readonly string[] = []) {
    const file = join(this.#directory, 'image');
    mkdirSync(this.path);
    execFileSync('truncate', ['-s', `${megabytes}M`, file]);
    execFileSync('mkfs.btrfs', ['-q', file], { stdio: 'pipe' });
    execFileSync('mount', ['-o', ['loop', ...options].join(), file, this.path], { stdio: 'pipe' });
  }

  /** Returns the bytes of all extents of files, deleted ones too until the kernel has freed them. */
  dataBytes(): number {
    execFileSync('btrfs', ['filesystem', 'sync', this.path], { stdio: 'pipe' });
    const told = execFileSync('btrfs', ['filesystem', 'df', '--raw', this.path], { encoding: 'utf8' });
    return Number(/^Data, single: total=\d+, used=(\d+)$/m.exec(told)?.[1]);
  }

  /** Tells whether the kernel has gone through all subvolumes that were deleted: until then, their extents count. */
  isCleaned(): boolean {
    // A sync wakes the one that does it.
    execFileSync('btrfs', ['filesystem', 'sync', this.path], { stdio: 'pipe' });
    return execFileSync('btrfs', ['subvolume', 'list', '-d', this.path], { encoding: 'utf8' }) === '';
  }

  remove(): void {
    execFileSync('umount', ['-l', this.path]);
    rmSync(this.#directory, { recursive: true });
  }
}

/** Why tests on btrfs cannot run on this machine; false when they can. */
export function noBtrfs(): string | false {
  try {
    new BtrfsDisk(256).remove();
    return false;
  } catch (error) {
    return `no btrfs: ${String(error).split('\n', 1)[0] ?? ''}`;
  }
}
