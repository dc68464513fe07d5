/** Opens the layer store: makes its directories, and opens the driver that keeps and mounts the files. */
import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { IdMaps } from '../../ports/id-maps.js';
import type { Logger } from '../../ports/logger.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import { letPass } from '../../sys/users/id-access.js';
import { rootOwner } from '../../sys/users/id-maps.js';
import { createWorkerPool, type WorkerPool } from '../../workers/pool.js';
import type { DriverContext, DriverRow } from '../drivers/driver.js';
import { DriverLayerStore } from './layer-store.js';
import { Layout } from './layout.js';
import { spreadLayers } from './spread-layers.js';

export interface LayerStoreOptions {
  /** `<data-root>/<name of the driver>`; created when missing. */
  readonly root: string;
  readonly driver: DriverRow;
  readonly workers: WorkerPool;
  /** Makes the tars of layers, and is closed with the store. Default: threads of its own. */
  readonly readers?: WorkerPool;
  readonly log: Logger;
  /** `name=value`; those of other drivers are ignored. */
  readonly storageOpts?: readonly string[];
  /** Maps the owners of files in images to this host; undefined: they are the same. */
  readonly idMaps?: IdMaps | undefined;
  /** Returns the SELinux label for the files of a container. Default: none has one. */
  readonly labelOf?: DriverContext['labelOf'];
}

const READERS = { maxThreads: 2, tasksPerThread: 32 };

/**
 * Opens the store: makes its directories and opens the driver. `load` must be called next.
 * @throws EngineError as `DriverRow.open`.
 */
export async function openLayerStore(options: LayerStoreOptions): Promise<DriverLayerStore> {
  const { root, driver: row, workers, log, storageOpts = [], idMaps, labelOf = () => undefined } = options;
  // Before anything is made there: it may be the wrong file system.
  row.check?.(existsSync(root) ? root : dirname(root), storageOpts);
  await makeDirectories(root, { mode: 0o710 });
  // The mount table names real paths.
  const layout = new Layout(await realpath(root));
  const owner = rootOwner(idMaps);
  const { layers, index, writable, staging, unsynced } = layout;
  for (const directory of [layers, index, writable, staging, layout.trash, unsynced])
    await makeDirectories(directory, { mode: 0o710 });
  await Promise.all([layout.root, layout.writable].map((directory) => letPass(directory, owner)));
  spreadLayers(layout.staging);
  const driver = await row.open({ layout, workers, log, storageOpts, owner, labelOf });
  const { readers = createWorkerPool(READERS) } = options;
  return new DriverLayerStore({ row, driver, layout, workers, readers, log, idMaps });
}
