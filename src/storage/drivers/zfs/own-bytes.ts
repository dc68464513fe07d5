/** Counts what the datasets of layers and containers have alone. Synchronous, for worker threads. */
import { execFileSync } from 'node:child_process';
import { dirname } from 'node:path';
import type { BlockCounting } from '../driver.js';
import { datasetIn, SNAPSHOT } from './places.js';

/** A line for each dataset and snapshot. */
const MAX_BYTES = 64 << 20;

/** Bytes written to a dataset since it was made, by its full name. */
let written = new Map<string, number>();
let parent = '';

export const zfsCounting: BlockCounting = {
  /** Writes to the disk what is in memory only, as that is not counted yet. */
  prepare(root) {
    written = new Map();
    parent = datasetIn(root) ?? datasetIn(dirname(root)) ?? '';
    if (parent === '') return;
    run('zpool', 'sync', parent.split('/', 1)[0] ?? '');
    const columns = ['-t', 'filesystem,snapshot', '-o', 'name,value', 'written'];
    for (const line of run('zfs', 'get', '-Hp', '-d', '2', ...columns, parent).split('\n')) {
      const [full = '', value = '0'] = line.split('\t');
      const [name = '', snapshot] = full.split('@');
      if (snapshot === undefined || snapshot === SNAPSHOT) written.set(name, (written.get(name) ?? 0) + Number(value));
    }
  },
  own(directory) {
    const name = datasetIn(directory);
    return name === undefined ? 0 : (written.get(`${parent}/${name}`) ?? 0);
  },
};

/** Returns nothing for a pool that is not there. */
function run(program: string, ...args: readonly string[]): string {
  try {
    return execFileSync(program, args, { encoding: 'utf8', maxBuffer: MAX_BYTES, stdio: ['ignore', 'pipe', 'ignore'] });
  } catch {
    return '';
  }
}
