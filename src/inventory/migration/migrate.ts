/**
 * Copies the images and stopped containers of one storage driver to another in the same data root. It may be ended at
 * any moment and called again: a layer, an image and a container appear whole or not at all, each after what it stands
 * on and when that is on the disk; what is there already is left out. The old data stay until the operator removes
 * them.
 */
import { mkdir, rename, rm, statfs } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { conflict, invalid } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { driverPath, storageDriver } from '../../storage/drivers/index.js';
import { driversWithData } from '../../storage/drivers/selection.js';
import { takeLayer, takeWritable } from '../../storage/layers/take-over.js';
import { removeRecord, writeRecord } from '../../storage/record-store.js';
import { syncDirectory } from '../../sys/files/durable-file.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import {
  containersOf,
  layersOf,
  type MigrationContext,
  type MovedRecord,
  openPlace,
  type Place,
  refuseRunning,
  shownName,
  wholeImages,
} from './place.js';
import { readMigration, UNFINISHED } from './unfinished.js';

/** These belong to one driver; others may share what else is in `image` and `builder`. */
const OWN = [
  'containers',
  'image/references.json',
  'image/content',
  'image/metadata',
  'image/distribution',
  'builder/cache',
];
/** A start of the daemon deletes directories of containers that begin so. */
const HALF_MADE = '.removed-';
/** Blocks are larger than files, directories and records come on top. */
const SPACE_FACTOR = 1.2;
const SPACE_BYTES = 32 << 20;

/**
 * @param to is the name of a driver.
 * @throws EngineError conflict or invalid with what the operator has to do before; nothing was changed then.
 */
export async function migrate(context: MigrationContext, to: string): Promise<void> {
  const { dataRoot, print } = context;
  const from = await sourceOf(context, to);
  const source = await openPlace(context, from);
  try {
    const containers = await containersOf(source);
    await refuseRunning(containers);
    const images = await wholeImages(source);
    const target = await openPlace(context, to);
    try {
      const layers = await layersOf(source, images);
      const missing = layers.filter((chainId) => !target.store.find(chainId));
      const due = containers.filter(({ id }) => !existsSync(join(target.containerRoot, id)));
      checkUsers(source, due);
      await checkSpace(source, target, missing, due);
      print(`${from} to ${to}: ${images.length} images with ${layers.length} layers, ${containers.length} containers`);
      await writeRecord(join(dataRoot, UNFINISHED), { from, to });
      await copyLayers(context, source, target, { layers, missing });
      await copyImages(context, source, target, images);
      await copyContainers(context, source, target, { containers, due });
      await removeRecord(join(dataRoot, UNFINISHED));
    } finally {
      await target.store.close();
    }
  } finally {
    await source.store.close();
  }
  print(`done; the build cache was not copied. Start the daemon with --storage-driver ${to}.`);
  print(`The data of ${from} are still there. To remove them: engined migrate --remove ${from}`);
}

/** Finds the driver whose data are to be copied, and refuses a target that has data of its own. */
async function sourceOf({ dataRoot, named }: MigrationContext, to: string): Promise<string> {
  const unfinished = await readMigration(dataRoot);
  if (unfinished?.to === to && !unfinished.isGivenUp) return unfinished.from;
  if (unfinished && !unfinished.isGivenUp)
    throw conflict(
      `a migration from ${unfinished.from} to ${unfinished.to} is not finished: go on with --to ${unfinished.to}, or ` +
        `give it up with --remove ${unfinished.to}`,
      { code: 'MIGRATION_UNFINISHED' },
    );
  const drivers = driversWithData(dataRoot);
  if (drivers.includes(to))
    throw conflict(
      `${dataRoot} already holds data of the storage driver ${to}; remove them with --remove ${to}, or start the ` +
        `daemon with --storage-driver ${to} to use them`,
      { code: 'MIGRATION_TARGET' },
    );
  const [from, ...others] = named !== '' && drivers.includes(named) ? [named] : drivers;
  if (from === undefined) throw invalid(`${dataRoot} holds nothing to be moved`, { code: 'MIGRATION_SOURCE' });
  if (others.length > 0)
    throw invalid(`${dataRoot} holds data of ${drivers.join(', ')}; name one with --storage-driver`, {
      code: 'MIGRATION_SOURCE',
    });
  return from;
}

/** Only overlay2 can show images to users of a container's own. */
function checkUsers({ store }: Place, due: readonly MovedRecord[]): void {
  const own = due.find(({ id }) => store.mapsOf(id));
  if (own)
    throw conflict(
      `container ${own.name} has users of its own (--userns=auto), which other storage drivers cannot give it: ` +
        'remove it',
      { code: 'OWN_USERS' },
    );
}

async function checkSpace(
  source: Place,
  target: Place,
  missing: readonly Digest[],
  due: readonly MovedRecord[],
): Promise<void> {
  let bytes = missing.reduce((sum, chainId) => sum + (source.store.find(chainId)?.sizeBytes ?? 0), 0);
  for (const { id } of due) if (source.store.writableIds().includes(id)) bytes += await source.store.writableSize(id);
  const needed = Math.ceil(bytes * SPACE_FACTOR) + SPACE_BYTES;
  const { bavail, bsize } = await statfs(dirname(target.containerRoot));
  if (needed > bavail * bsize)
    throw conflict(
      `not enough space: the copy needs about ${needed} bytes, and ${bavail * bsize} are free at ` +
        dirname(target.containerRoot),
      { code: 'MIGRATION_SPACE' },
    );
}

async function copyLayers(
  { pool, print }: MigrationContext,
  source: Place,
  target: Place,
  { layers, missing }: { readonly layers: readonly Digest[]; readonly missing: readonly Digest[] },
): Promise<void> {
  let done = layers.length - missing.length;
  for (const chainId of missing) {
    await takeLayer({ from: source.store, to: target.store, workers: pool }, chainId);
    print(`layer ${++done} of ${layers.length}: ${chainId}`);
  }
  await target.store.sync();
}

async function copyImages(
  { pool, print }: MigrationContext,
  source: Place,
  target: Place,
  images: readonly Digest[],
): Promise<void> {
  for (const id of images) {
    const bytes = await source.content.read(id);
    if (!bytes) continue;
    await target.content.writeMetadata(id, await source.content.readMetadata(id));
    await target.content.write(id, bytes);
  }
  const names = images.flatMap((id) => [...source.references.of(id)].map((key) => [key, id] as const));
  await target.references.change(new Map(names));
  const known = join(source.imageRoot, 'distribution');
  const to = join(target.imageRoot, 'distribution');
  if (existsSync(known)) {
    await rm(to, { recursive: true, force: true });
    await mkdir(to, { mode: 0o700 });
    await pool.run('apply-difference', { difference: known, tree: to });
  }
  print(`images: ${images.length} of ${images.length}`);
}

async function copyContainers(
  { pool, print }: MigrationContext,
  source: Place,
  target: Place,
  { containers, due }: { readonly containers: readonly MovedRecord[]; readonly due: readonly MovedRecord[] },
): Promise<void> {
  await makeDirectories(target.containerRoot, { mode: 0o710 });
  let done = containers.length - due.length;
  const writables = new Set(source.store.writableIds());
  const stores = { from: source.store, to: target.store, workers: pool };
  for (const record of due) {
    const { id, name, hostConfig } = record;
    if (writables.has(id)) await takeWritable(stores, id, hostConfig.StorageOpt ?? {});
    const half = join(target.containerRoot, `${HALF_MADE}${id}`);
    await rm(half, { recursive: true, force: true });
    await mkdir(half, { mode: 0o710 });
    await pool.run('apply-difference', { difference: join(source.containerRoot, id), tree: half });
    await writeRecord(join(half, 'container.json'), moved(record, source, target));
    await target.store.sync();
    await rename(half, join(target.containerRoot, id));
    await syncDirectory(target.containerRoot);
    print(`container ${++done} of ${containers.length}: ${shownName(name)}`);
  }
}

/** A record names its log by an absolute path. */
function moved(record: MovedRecord, source: Place, target: Place): MovedRecord {
  const { logPath } = record;
  const inside = logPath.startsWith(`${source.containerRoot}/`)
    ? logPath.slice(source.containerRoot.length)
    : undefined;
  return inside === undefined ? record : { ...record, logPath: target.containerRoot + inside };
}

/**
 * Deletes the images, containers and build cache of a driver.
 * @throws EngineError conflict when that cannot be meant.
 */
export async function removeDriver(context: MigrationContext, driver: string): Promise<void> {
  const { dataRoot, print } = context;
  const at = (path: string): string => join(dataRoot, driverPath(driver, path));
  if (!existsSync(join(dataRoot, driver)))
    throw invalid(`${dataRoot} holds nothing of the storage driver ${driver}`, { code: 'MIGRATION_SOURCE' });
  if (!driversWithData(dataRoot).some((name) => name !== driver))
    throw conflict(`the images and containers of ${driver} are the only ones in ${dataRoot}`, {
      code: 'MIGRATION_LAST',
    });
  const unfinished = await readMigration(dataRoot);
  if (unfinished?.from === driver)
    throw conflict(
      `the migration from ${driver} to ${unfinished.to} was not finished, so ${driver} has what was not copied: ` +
        `remove the copy first (--remove ${unfinished.to}), or delete ${UNFINISHED} in ${dataRoot} to keep the copy`,
      { code: 'MIGRATION_UNFINISHED' },
    );
  await refuseRunning(await containersOf({ containerRoot: at('containers') }));
  const store = await context.open(storageDriver(driver));
  await store.load();
  for (const path of OWN) await rm(at(path), { recursive: true, force: true });
  for (const id of store.writableIds()) await store.removeWritable(id);
  await store.collect();
  await store.close();
  await rm(join(dataRoot, driver), { recursive: true, force: true });
  if (unfinished?.to === driver) await removeRecord(join(dataRoot, UNFINISHED));
  print(`the data of ${driver} are gone`);
}
