/** Which storage driver a daemon has, and what data roots hold of others. */
import { existsSync, opendirSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { invalid } from '../../errors/engine-error.js';
import { ownMember } from '../../text/own-member.js';
import type { DriverRow, StoreKind } from './driver.js';
import { driverPath, SNAPSHOTTER_FEATURE, STORAGE_DRIVERS, STORES } from './index.js';

/** Paths with something in them where a driver has layers, containers or images. */
const SIGNS = (driver: string): string[] => [
  `${driver}/index`,
  `${driver}/writable`,
  driverPath(driver, 'image/content'),
  driverPath(driver, 'containers'),
];

/** Returns the names of the drivers that have data in a data root, in the order of the table. */
export function driversWithData(dataRoot: string): string[] {
  return withData(STORAGE_DRIVERS, dataRoot);
}

/** Returns the names of all stores with data in a data root: besides those of the drivers that of the snapshots. */
export function storesWithData(dataRoot: string): string[] {
  return withData(STORES, dataRoot);
}

function withData(stores: readonly StoreKind[], dataRoot: string): string[] {
  return stores.map(({ name }) => name).filter((name) => SIGNS(name).some((path) => isFilled(join(dataRoot, path))));
}

/** The snapshotter that is used when none is named. */
const DEFAULT_SNAPSHOTTER = 'overlayfs';

/**
 * Returns the snapshotter of the supervisor that has images and containers; undefined when a storage driver has them.
 */
export function snapshotterOf(features: Readonly<Record<string, boolean>>, storageDriver: string): string | undefined {
  return ownMember(features, SNAPSHOTTER_FEATURE) === true ? storageDriver || DEFAULT_SNAPSHOTTER : undefined;
}

/**
 * Returns the drivers that come into question, the first one that opens is taken: the named one, else the one that has
 * data, else all in their order, those first that suit the file system best.
 * @throws EngineError invalid when several have data and none is named.
 */
export function driverCandidates(name: string, dataRoot: string): readonly DriverRow[] {
  if (name !== '') return STORAGE_DRIVERS.filter((row) => row.name === name);
  const found = driversWithData(dataRoot);
  if (found.length > 1)
    throw invalid(
      `${dataRoot} contains several valid graphdrivers: ${found.sort().join(', ')}; cleanup or explicitly choose ` +
        'storage driver (-s <DRIVER>)',
      { code: 'SEVERAL_DRIVERS' },
    );
  if (found.length > 0) return STORAGE_DRIVERS.filter((row) => row.name === found[0]);
  const directory = nearestDirectory(dataRoot);
  const suitable = STORAGE_DRIVERS.filter((row) => row.suits?.(directory));
  return [...suitable, ...STORAGE_DRIVERS.filter((row) => !suitable.includes(row))];
}

/** Returns the directory that exists and in which a data root will be made. Its path has no link. */
export function nearestDirectory(path: string): string {
  return existsSync(path) ? realpathSync(path) : nearestDirectory(dirname(path));
}

/** @throws EngineError invalid for an option that another driver has. */
export function checkOwnOptions({ name, options }: DriverRow, storageOpts: readonly string[]): void {
  for (const entry of storageOpts) {
    const option = entry.split('=', 1)[0] ?? '';
    if (!options.some((known) => known.name === option))
      throw invalid(`storage option ${option} does not belong to storage driver ${name}`, { code: 'STORAGE_OPTION' });
  }
}

function isFilled(directory: string): boolean {
  try {
    const entries = opendirSync(directory);
    try {
      return entries.readSync() !== null;
    } finally {
      entries.closeSync();
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return false;
    throw error;
  }
}
