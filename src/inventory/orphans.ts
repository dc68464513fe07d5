/** Finds the places below the data root that belong to nobody. */
import type { Place, PlaceKind } from '../ports/inventory.js';

/** All owners of places. Digests are written as their hex digits. */
export interface Owners {
  /** Short IDs of layers. */
  readonly layers: ReadonlySet<string>;
  /** Chain IDs. */
  readonly chains: ReadonlySet<string>;
  readonly images: ReadonlySet<string>;
  /** IDs of containers, including those whose record cannot be read but must not be lost. */
  readonly containers: ReadonlySet<string>;
  /** IDs that a writable layer may have. */
  readonly writables: ReadonlySet<string>;
  readonly volumes: ReadonlySet<string>;
  /** IDs of managed plugins, including those whose record cannot be read. */
  readonly plugins: ReadonlySet<string>;
  /** IDs of the records of the build cache. */
  readonly cacheRecords: ReadonlySet<string>;
  /** Names of staged layers. */
  readonly staging: ReadonlySet<string>;
  /** If true, a daemon runs, and temporary files and the trash are left to it. */
  readonly isRunning: boolean;
}

export interface Finding {
  /** Below the data root. */
  readonly path: string;
  readonly kind: PlaceKind;
  readonly reason: string;
  readonly bytes: number;
  /** False for a place that somebody may miss: it is reported and left alone. */
  readonly isRepairable: boolean;
}

type Judge = (owner: string, owners: Owners) => { readonly reason: string; readonly isRepairable: boolean } | undefined;

const unless = (isOwned: boolean, reason: string, isRepairable = true): ReturnType<Judge> =>
  isOwned ? undefined : { reason, isRepairable };

const JUDGES: Readonly<Record<PlaceKind, Judge>> = {
  layer: (id, { layers }) => unless(layers.has(id), 'a layer without a record, or one that nothing uses'),
  'layer-record': (hex, { chains }) =>
    unless(chains.has(hex), 'a record of a layer that is not there or that nothing uses'),
  // The next sync of the file system removes a mark, even if its layer is gone.
  'layer-mark': () => undefined,
  writable: (id, { writables }) => unless(writables.has(id), 'a writable layer of no container'),
  staging: (name, { staging }) => unless(staging.has(name), 'an unfinished layer'),
  trash: (_, { isRunning }) => unless(isRunning, 'a deletion that was interrupted'),
  image: (hex, { images }) => unless(images.has(hex), 'a configuration of no image'),
  'image-record': (hex, { images }) => unless(images.has(hex), 'a record of no image'),
  // These records are hints for pushes; the next start removes those of layers that are gone.
  'push-record': () => undefined,
  partial: () => undefined,
  // Those of layers that are gone are removed an hour later at the latest.
  'pulled-blob': () => undefined,
  container: (id, { containers, isRunning }) => unless(containers.has(id), 'a directory of no container', !isRunning),
  volume: (name, { volumes }) =>
    unless(volumes.has(name), 'a directory that is no volume, or one whose record is damaged', false),
  plugin: (id, { plugins, isRunning }) => unless(plugins.has(id), 'a directory of no plugin', !isRunning),
  'cache-record': (id, { cacheRecords }) =>
    unless(cacheRecords.has(id), 'a record of the build cache that is damaged, or whose files are missing'),
  'cache-directory': (id, { cacheRecords }) =>
    unless(cacheRecords.has(id), 'a directory of no record of the build cache'),
  temporary: (_, { isRunning }) => unless(isRunning, 'a temporary file'),
  engine: () => undefined,
  leftover: (_, { isRunning }) => unless(isRunning, 'a write that was interrupted'),
  foreign: () => undefined,
  directory: () => undefined,
  other: () => ({ reason: 'not made by this daemon', isRepairable: false }),
};

export function findOrphans(places: readonly Place[], owners: Owners): Finding[] {
  return places.flatMap(({ path, kind, owner, bytes }) => {
    const verdict = JUDGES[kind](owner, owners);
    return verdict ? [{ path, kind, bytes, ...verdict }] : [];
  });
}
