/**
 * A program that adds to the build cache below the data root in its argument, and prunes it, until it is killed. It
 * prints `+key` when a record is told, and `-key` before one is pruned.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FileBuildCache } from '../../src/build/cache/build-cache.js';
import { inlinePool } from './inline-pool.js';
import { silentLog } from './silent-log.js';

const AT_A_TIME = 4;
const [, , dataRoot = '', life = ''] = process.argv;
const cache = new FileBuildCache({
  root: join(dataRoot, 'builder/cache'),
  layers: { find: () => undefined, retain: () => undefined, release: () => Promise.resolve([]) },
  pool: inlinePool,
  owner: { uid: 0, gid: 0 },
  imageLayers: () => new Set(),
  log: silentLog,
});
await cache.load();

async function add(key: string, parents: readonly string[]): Promise<string> {
  const held = await cache.add({
    key,
    parents,
    type: 'regular',
    description: key,
    layer: undefined,
    isEmpty: true,
    sizeBytes: 0,
  });
  process.stdout.write(`+${key}\n`);
  await held.release();
  return held.id;
}

async function mount(id: string): Promise<void> {
  const order = { id, sharing: 'shared', description: id } as const;
  const seed = (directory: string): Promise<void> => writeFile(join(directory, 'file'), id);
  const opened = await cache.openMount({ ...order, seed }, new AbortController().signal);
  await opened.release();
}

async function prune(key: string): Promise<void> {
  process.stdout.write(`-${key}\n`);
  await cache.prune({
    all: true,
    keepDurationMs: 0,
    reservedSpace: 0,
    maxUsedSpace: 0,
    minFreeSpace: 0,
    selects: ({ description }) => description === key,
  });
}

for (let round = 0; ; round++) {
  const name = `${life}-${round}`;
  const parent = await add(`${name}-base`, []);
  const steps = Array.from({ length: AT_A_TIME }, (_, step) => add(`${name}-${step}`, [parent]));
  await Promise.all([...steps, mount(name)]);
  await Promise.all([prune(`${name}-0`), add(`${name}-last`, [parent])]);
}
