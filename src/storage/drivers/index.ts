/** The table of storage drivers: composition opens them, and the configuration is checked against their options. */
import { btrfs } from './btrfs/btrfs-driver.js';
import type { DriverRow } from './driver.js';
import { overlay2 } from './overlay/overlay-driver.js';

export const STORAGE_DRIVERS: readonly DriverRow[] = [overlay2, btrfs];

/** The driver that a daemon has when none is named. */
export const DEFAULT_STORAGE_DRIVER = overlay2.name;

/** The driver of a checked configuration; '' is the default one. */
export function storageDriver(name: string): DriverRow {
  return STORAGE_DRIVERS.find((driver) => driver.name === name) ?? overlay2;
}

/** Directories below the data root that belong to drivers, for those who count what is there. */
export const STORE_PLACES = STORAGE_DRIVERS.map(({ name, ownPlaces }) => ({ name, ownPlaces }));
