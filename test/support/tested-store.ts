/**
 * Where the daemons of a process keep images and containers: `ENGINE_TEST_STORE=btrfs npm test -- test/clients` runs
 * tests that say nothing of it with another storage driver, or with the snapshots of containerd.
 */
import type { BuiltImage, TestDigest } from './image-builder.js';

const VARIABLE = 'ENGINE_TEST_STORE';

/** A driver, or `snapshotter`: that of containerd, with the feature of each engine. */
export type Store = 'overlay2' | 'btrfs' | 'fuse-overlayfs' | 'snapshotter';

/** The one that both engines take when nothing is said. */
export const DEFAULT_STORE: Store = 'overlay2';
export const OTHER_STORES: readonly Store[] = ['btrfs', 'fuse-overlayfs', 'snapshotter'];

/** The feature of each engine that has containerd keep images and containers. */
const FEATURE = { engined: 'supervisor-snapshotter', dockerd: 'containerd-snapshotter=true' } as const;

export function testedStore(): Store {
  const name = process.env[VARIABLE] ?? DEFAULT_STORE;
  const store = [DEFAULT_STORE, ...OTHER_STORES].find((one) => one === name);
  if (store === undefined) throw new Error(`${VARIABLE}=${name} is none of ${[DEFAULT_STORE, ...OTHER_STORES].join()}`);
  return store;
}

/** Returns the flags with which a daemon has a store. */
export function storeArgs(engine: keyof typeof FEATURE, store: string): readonly string[] {
  if (store === 'snapshotter') return ['--feature', FEATURE[engine]];
  return ['--storage-driver', store];
}

/** Returns the flags that the environment asks for. */
export function testedStoreArgs(engine: keyof typeof FEATURE): readonly string[] {
  return process.env[VARIABLE] === undefined ? [] : storeArgs(engine, testedStore());
}

/** Tells whether flags name a store. */
export function nameStore(args: readonly string[]): boolean {
  return args.includes('--storage-driver') || Object.values(FEATURE).some((feature) => args.includes(feature));
}

/** Returns the ID of an image that was pulled: in containerd it is that of its manifest, else of its configuration. */
export function idIn(store: Store, image: BuiltImage): TestDigest {
  return store === 'snapshotter' ? image.digest : image.id;
}

/** Returns what `docker info` calls it: the snapshots of containerd go by the snapshotter that makes them. */
export function shownName(store: Store): string {
  return store === 'snapshotter' ? 'overlayfs' : store;
}
