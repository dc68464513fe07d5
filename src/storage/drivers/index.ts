/** The table of storage drivers: composition opens them, and the configuration is checked against their options. */
import { btrfs } from './btrfs/btrfs-driver.js';
import type { DriverRow, StoreKind } from './driver.js';
import { fuseOverlayfs } from './fuse-overlayfs/fuse-driver.js';
import { overlay2 } from './overlay/overlay-driver.js';
import { SNAPSHOTTER_STORE } from './snapshotter/snapshotter-driver.js';
import { zfs } from './zfs/zfs-driver.js';

/** The feature with which images and containers are in the supervisor. Their store has this name, too. */
export const SNAPSHOTTER_FEATURE = SNAPSHOTTER_STORE.name;

export { leaseOf, snapshotterRow } from './snapshotter/snapshotter-driver.js';

/** In the order in which they are tried in a new data root. */
export const STORAGE_DRIVERS: readonly DriverRow[] = [overlay2, btrfs, zfs, fuseOverlayfs];

/** The driver that a daemon has when none is named. */
export const DEFAULT_STORAGE_DRIVER = overlay2.name;

/** The driver of a checked configuration; '' is the default one. */
export function storageDriver(name: string): DriverRow {
  return STORAGE_DRIVERS.find((driver) => driver.name === name) ?? overlay2;
}

/**
 * Returns the path below the data root of what goes with the layers of a driver: records of images and containers, the
 * build cache. Each driver has its own, so that one leaves alone what belongs to the layers of another. Those of
 * overlay2 have no directory around them, as it was the first.
 */
export function driverPath(driver: string, path: string): string {
  return driver === overlay2.name ? path : `${driver}/${path}`;
}

/** The stores that a data root may have: those of the drivers, and that of the snapshots of the supervisor. */
export const STORES: readonly StoreKind[] = [...STORAGE_DRIVERS, SNAPSHOTTER_STORE];

/** Directories below the data root that belong to drivers, for those who count what is there. */
export const STORE_PLACES = STORES.map(({ name, ownPlaces }) => ({
  name,
  ownPlaces,
  /** This comes before the paths of images, containers and the build cache. */
  prefix: driverPath(name, ''),
}));
