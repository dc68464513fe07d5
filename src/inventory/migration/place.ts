/** Everything of one storage driver in a data root: its layers, images and containers. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, messageOf } from '../../errors/engine-error.js';
import { parseConfig } from '../../images/config-document.js';
import { ImageContent } from '../../images/content.js';
import { References } from '../../images/references.js';
import { chainOf } from '../../ports/chain-id.js';
import type { Digest } from '../../ports/storage.js';
import type { DriverRow } from '../../storage/drivers/driver.js';
import { driverPath, storageDriver } from '../../storage/drivers/index.js';
import type { DriverLayerStore } from '../../storage/layers/layer-store.js';
import { readRecord } from '../../storage/record-store.js';
import { runsInCgroup } from '../../sys/process/cgroup-member.js';
import type { WorkerPool } from '../../workers/pool.js';

export interface MigrationContext {
  readonly dataRoot: string;
  readonly pool: WorkerPool;
  readonly print: (line: string) => void;
  /** The driver that the configuration names, '' for none. */
  readonly named: string;
  open(driver: DriverRow): Promise<DriverLayerStore>;
}

/** The members of a container's record that a migration looks at. */
export interface MovedRecord {
  readonly id: string;
  readonly name: string;
  readonly logPath: string;
  readonly hostConfig: { readonly StorageOpt?: Readonly<Record<string, string>> | null };
  readonly state: { readonly pid: number };
}

export interface Place {
  readonly driver: string;
  readonly store: DriverLayerStore;
  readonly imageRoot: string;
  readonly content: ImageContent;
  readonly references: References;
  readonly containerRoot: string;
}

/** Opens the part of a driver as a start of the daemon does. The caller closes the store. */
export async function openPlace(context: MigrationContext, driver: string): Promise<Place> {
  const { dataRoot } = context;
  const store = await context.open(storageDriver(driver));
  await store.load();
  const imageRoot = join(dataRoot, driverPath(driver, 'image'));
  const content = new ImageContent(imageRoot);
  await content.open();
  const references = new References(imageRoot);
  await references.load();
  const containerRoot = join(dataRoot, driverPath(driver, 'containers'));
  return { driver, store, imageRoot, content, references, containerRoot };
}

/** Returns the chain IDs of the layers of all whole images and of all containers, each after the one below it. */
export async function layersOf({ store, content }: Place, images: readonly Digest[]): Promise<Digest[]> {
  const tops = new Set<Digest>(store.writableIds().flatMap((id) => store.parentOf(id) ?? []));
  for (const id of images) {
    const bytes = await content.read(id);
    const top = bytes && chainOf(parseConfig(bytes).rootfs.diff_ids).at(-1);
    if (top !== undefined) tops.add(top);
  }
  const ordered = new Set<Digest>();
  for (const top of tops) {
    const chain: Digest[] = [];
    for (let at: Digest | undefined = top; at !== undefined && !ordered.has(at); at = store.find(at)?.parent)
      chain.push(at);
    for (const chainId of chain.toReversed()) ordered.add(chainId);
  }
  return [...ordered];
}

/** Returns the images whose configuration and layers are whole; a start of the daemon would remove the others. */
export async function wholeImages({ store, content }: Place): Promise<Digest[]> {
  const whole: Digest[] = [];
  for (const id of await content.open()) {
    const bytes = await content.read(id);
    try {
      const top = bytes && chainOf(parseConfig(bytes).rootfs.diff_ids).at(-1);
      if (bytes && (top === undefined || store.find(top))) whole.push(id);
    } catch {
      // Not an image.
    }
  }
  return whole;
}

/** Returns the records of the containers. @throws EngineError for a damaged one. */
export async function containersOf({ containerRoot }: Pick<Place, 'containerRoot'>): Promise<MovedRecord[]> {
  const names = await readdir(containerRoot).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const found: MovedRecord[] = [];
  for (const name of names) {
    if (name.startsWith('.')) continue;
    try {
      const record = await readRecord(join(containerRoot, name, 'container.json'));
      if (record !== undefined) found.push(record as MovedRecord);
    } catch (error) {
      throw conflict(`the record of container ${name} cannot be read: ${messageOf(error)}`, {
        code: 'CONTAINER_DAMAGED',
      });
    }
  }
  return found;
}

/** Returns the name of a container as clients show it. */
export const shownName = (name: string): string => name.replace(/^\//, '');

/** @throws EngineError conflict with the names of the containers that run, which they may while no daemon does. */
export async function refuseRunning(records: readonly MovedRecord[]): Promise<void> {
  const running: string[] = [];
  for (const { id, name, state } of records)
    if (state.pid > 0 && (await runsInCgroup(state.pid, id))) running.push(shownName(name));
  if (running.length > 0)
    throw conflict(
      `containers are running: ${running.join(', ')}; start the daemon, stop them, and stop the daemon again`,
      { code: 'CONTAINERS_RUN' },
    );
}
