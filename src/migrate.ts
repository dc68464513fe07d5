/**
 * `engined migrate`: copies images and stopped containers to another storage driver, in the data root of a daemon that
 * is stopped, and removes what a driver has.
 */
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { foundDataRoot } from './composition/data-root.js';
import { checkState } from './inventory/state-version.js';
import type { LoadedConfig } from './config/settings.js';
import { invalid, isEngineError, messageOf } from './errors/engine-error.js';
import { migrate, removeDriver } from './inventory/migration/migrate.js';
import type { MigrationContext } from './inventory/migration/place.js';
import type { Logger } from './ports/logger.js';
import { STORAGE_DRIVERS } from './storage/drivers/index.js';
import { openLayerStore } from './storage/layers/open-layer-store.js';
import { lockDirectory } from './sys/files/directory-lock.js';
import { readIdMaps } from './sys/users/remapped-user.js';
import { createWorkerPool } from './workers/pool.js';

export interface MigrationRequest {
  /** Name of the driver that gets images and containers. */
  readonly to?: string;
  /** Name of the driver whose data are deleted. */
  readonly remove?: string;
}

/** Does it, and prints a line for each step. Returns the exit code. */
export async function runMigration(
  { config }: LoadedConfig,
  request: MigrationRequest,
  print: (line: string) => void,
  complain: (line: string) => void,
): Promise<number> {
  const pool = createWorkerPool({ maxThreads: 2 });
  try {
    const name = driverOf(request);
    // This is asked first, because locking would make a directory that the operator named by mistake.
    await access(config.dataRoot);
    const lock = await lockDirectory('data-root', config.dataRoot);
    try {
      await checkState(lock.path);
      const maps = config.usernsRemap === '' ? undefined : readIdMaps(config.usernsRemap);
      const { dataRoot, idMaps } = foundDataRoot(lock.path, maps);
      await access(dataRoot);
      const log = logTo(complain);
      const context: MigrationContext = {
        dataRoot,
        pool,
        print,
        named: config.storageDriver,
        open: (driver) => {
          const storageOpts = config.storageOpts.filter((entry) =>
            driver.options.some((o) => entry.startsWith(o.name)),
          );
          const root = join(dataRoot, driver.name);
          return openLayerStore({ root, driver, workers: pool, log, storageOpts, idMaps });
        },
      };
      await (request.to === undefined ? removeDriver(context, name) : migrate(context, name));
      return 0;
    } finally {
      await lock.release();
    }
  } catch (error) {
    complain(`engined migrate: ${isEngineError(error) ? error.message : messageOf(error)}`);
    return 1;
  } finally {
    await pool.close();
  }
}

function driverOf({ to, remove }: MigrationRequest): string {
  if ((to === undefined) === (remove === undefined))
    throw invalid('give either --to DRIVER or --remove DRIVER', { code: 'MIGRATION_USAGE' });
  const name = to ?? remove ?? '';
  const names = STORAGE_DRIVERS.map((driver) => driver.name);
  if (!names.includes(name))
    throw invalid(`driver not supported: ${name}; this engine has ${names.join(', ')}`, { code: 'MIGRATION_USAGE' });
  return name;
}

/** Warnings and errors come as lines. */
function logTo(complain: (line: string) => void): Logger {
  const tell = (fields: object, message: string): void => {
    const { err } = fields as { readonly err?: unknown };
    complain(err === undefined ? message : `${message}: ${messageOf(err)}`);
  };
  const log: Logger = { debug: () => undefined, info: () => undefined, warn: tell, error: tell, child: () => log };
  return log;
}
