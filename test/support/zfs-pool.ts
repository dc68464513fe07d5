/** OpenZFS, which only the machines of `npm run test:vm -- zfs` have. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';

/** Whether the kernel has ZFS, as a module or in itself. */
export function hasZfs(): boolean {
  return spawnSync('modprobe', ['zfs'], { stdio: 'ignore' }).status === 0 || existsSync('/dev/zfs');
}

/** Runs a program and returns its trimmed output. Throws with what it says when it fails. */
export function run(...[program = '', ...args]: readonly string[]): string {
  return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
}

/** A pool in a file. */
export class ZfsPool {
  readonly path: string;
  readonly #file: string;

  /** @param size as truncate(1) takes it. */
  constructor(
    private readonly name: string,
    size = '2G',
  ) {
    this.path = `/${name}`;
    this.#file = `/var/tmp/${name}-one`;
    run('truncate', '-s', size, this.#file);
    run('zpool', 'create', '-m', this.path, name, this.#file);
  }

  remove(): void {
    run('zpool', 'destroy', this.name);
    rmSync(this.#file);
  }
}
