/**
 * A view of /etc that this test process and the daemons that it starts have to themselves: what is written there is
 * gone with them.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { libc } from '../../src/sys/ffi/libc.js';

// linux/sched.h
const CLONE_NEWNS = 0x20000;

const unshare = libc.checked<[flags: number]>('unshare', 'int unshare(int flags)');

/**
 * Moves the main thread, and so what it starts, to a mount namespace of its own with an empty layer over /etc. Only
 * synchronous calls of this process see it: Node does the others in threads that stay behind.
 * @param dir an empty directory.
 */
export function enterOwnEtc(dir: string): void {
  unshare(CLONE_NEWNS);
  execFileSync('mount', ['--make-rprivate', '/']);
  execFileSync('mount', ['-t', 'tmpfs', 'own-etc', dir]);
  for (const name of ['upper', 'work']) mkdirSync(join(dir, name));
  execFileSync('mount', [
    '-t',
    'overlay',
    'overlay',
    '-o',
    `lowerdir=/etc,upperdir=${dir}/upper,workdir=${dir}/work`,
    '/etc',
  ]);
}
