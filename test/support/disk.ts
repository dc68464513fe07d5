/** The size of a directory as du(1) sees it: an opinion that is not ours. */
import { execFileSync } from 'node:child_process';

/** Bytes on the disk below a directory, other file systems left out. */
export function diskBytes(dir: string): number {
  try {
    return Number(
      execFileSync('du', ['-sx', '--block-size=1', dir], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'ignore'],
      }).split('\t')[0],
    );
  } catch (error) {
    // Some files have vanished under its eyes; it has counted the rest.
    return Number(String((error as { stdout?: string }).stdout).split('\t')[0]);
  }
}

export function assertWithin(actual: number, expected: number, part: number, what: string): void {
  if (Math.abs(actual - expected) > expected * part)
    throw new Error(`${what}: ${actual} is not within ${part * 100} % of ${expected}`);
}
