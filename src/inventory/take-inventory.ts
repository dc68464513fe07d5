/** Worker task: lists every place below the data root with the bytes that it takes on the disk. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { recordIdOf } from '../build/cache/stored-record.js';
import { toBytePath, toText } from '../storage/byte-path.js';
import { statOf } from '../storage/stat-of.js';
import { isTemporary } from '../sys/files/durable-file.js';
import type { Place, PlaceKind } from '../ports/inventory.js';
import { BlockCounter, countingOf } from './block-counter.js';

export interface TakeInventoryInput {
  readonly dataRoot: string;
  /** The stores of layers: their directories below the data root, and what is in each besides its shelves. */
  readonly stores: readonly Store[];
  /** The driver whose daemon runs: the data of others count as a whole. Undefined: nobody's daemon runs. */
  readonly driver?: string;
  /** Places that change only at their top, by path. One whose time is still the same is not read again. */
  readonly known: ReadonlyMap<string, Pick<Place, 'bytes' | 'mtimeNs'>>;
}

interface Store {
  readonly name: string;
  readonly ownPlaces: readonly string[];
  /** This comes before the paths of the places that each driver has. */
  readonly prefix: string;
}

/**
 * Tells of which kind the entries of a directory are. Undefined: the directory is not looked into and counts as a
 * whole.
 */
interface Shelf {
  readonly kind: PlaceKind;
  /** Returns the owner from the name of an entry. Undefined: the entry does not belong there. */
  readonly owner?: (name: string) => string | undefined;
  /** A removal or creation that was cut short is ended by the next start if its directory has one of these records. */
  readonly records?: readonly string[];
}

const HEX = /^[0-9a-f]{64}$/;
const hexRecord = (name: string): string | undefined =>
  HEX.test(name.replace(/\.json$/, '')) ? name.replace(/\.json$/, '') : undefined;
const hexName = (name: string): string | undefined => (HEX.test(name) ? name : undefined);
const pulledBlobName = (name: string): string | undefined =>
  /^[0-9a-f]{64}\.[0-9a-f]{64}$/.test(name) ? name : undefined;

/** Directories in a store of layers whose entries are listed one by one. */
const STORE_SHELVES: readonly (readonly [name: string, shelf: Shelf])[] = [
  ['layers', { kind: 'layer' }],
  ['index', { kind: 'layer-record', owner: hexRecord }],
  ['unsynced', { kind: 'layer-mark' }],
  ['writable', { kind: 'writable' }],
  ['staging', { kind: 'staging' }],
  ['trash', { kind: 'trash' }],
];
/** The other directories of this kind that go with the layers of each driver. */
const DRIVER_SHELVES: Readonly<Record<string, Shelf>> = {
  'image/content': { kind: 'image', owner: hexName },
  'image/metadata': { kind: 'image-record', owner: hexRecord },
  'image/distribution': { kind: 'push-record', owner: hexRecord },
  'image/blobs': { kind: 'pulled-blob', owner: pulledBlobName },
  containers: { kind: 'container', records: ['container.json', 'draft.json'] },
  'builder/cache/records': { kind: 'cache-record', owner: recordIdOf },
  'builder/cache/directories': { kind: 'cache-directory' },
  'builder/cache/digests': { kind: 'cache-directory' },
};
/** Those that all drivers share. */
const SHELVES: Readonly<Record<string, Shelf>> = {
  'image/partial': { kind: 'partial' },
  volumes: { kind: 'volume', records: ['volume.json'] },
  plugins: { kind: 'plugin', owner: hexName },
  'builder/contexts': { kind: 'temporary' },
  tmp: { kind: 'temporary' },
};
/** Single files and directories that the daemon keeps. */
const ENGINE: readonly string[] = [
  'engine-id.json',
  'state.json',
  'migration.json',
  'reserve',
  'events',
  'retries',
  'network',
  'supervisor',
  'builder/history',
];
/** The names of images. */
const REFERENCES = 'image/references.json';
/** Damaged records that `References.load` has kept for the operator. */
const PUT_ASIDE = /^(?:[a-z-]+\/)?image\/references\.json\.damaged-\d+$/;
/** Data roots of daemons that remap users, see composition/data-root.ts. */
const REMAPPED = /^\d+\.\d+$/;
/** Directories that hold shelves. */
const PARENTS: readonly string[] = ['image', 'builder', 'builder/cache'];
const UNFINISHED = /^\.(?:new|removed)-/;

/** Returns all places, in no particular order. A place that vanishes meanwhile is left out. */
export function takeInventory({ dataRoot, stores, driver, known }: TakeInventoryInput): Place[] {
  const { shelves, parents, engine, foreign } = mapOf(stores, driver);
  for (const { name } of stores) if (existsSync(join(dataRoot, name))) countingOf(name)?.prepare(join(dataRoot, name));
  const root = toBytePath(dataRoot);
  const places: Place[] = [];
  const device = statOf(root)?.dev ?? 0n;
  const counter = new BlockCounter(device, countedElsewhere(dataRoot, stores, device));
  const add = (path: string, kind: PlaceKind, owner: string): void => {
    const at = `${root}/${toBytePath(path)}`;
    const stat = statOf(at);
    if (!stat) return;
    const { mtimeNs } = stat;
    const before = known.get(path);
    const count = (): number =>
      kind === 'directory' ? counter.own(stat) : counter.tree(at, stat) + ownOf(dataRoot, path, kind, owner);
    const bytes = before?.mtimeNs === mtimeNs ? before.bytes : count();
    places.push({ path, kind, owner, bytes, mtimeNs });
  };
  const visit = (path: string): void => {
    add(path, 'directory', '');
    for (const name of namesIn(path === '' ? root : `${root}/${toBytePath(path)}`)) {
      const below = path === '' ? name : `${path}/${name}`;
      const shelf = shelves.get(below);
      const otherDriver = foreign.get(below);
      if (otherDriver !== undefined) add(below, 'foreign', otherDriver);
      else if (shelf) shelve(below, shelf);
      else if (parents.has(below)) visit(below);
      else if (isTemporary(name)) add(below, 'leftover', '');
      else if (REMAPPED.test(below)) add(below, 'directory', '');
      else add(below, engine.has(below) || PUT_ASIDE.test(below) ? 'engine' : 'other', '');
    }
  };
  const shelve = (path: string, { kind, owner, records = [] }: Shelf): void => {
    add(path, 'directory', '');
    const trash = (name: string): PlaceKind =>
      records.some((record) => existsSync(join(dataRoot, path, name, record))) ? 'engine' : 'trash';
    for (const name of namesIn(`${root}/${toBytePath(path)}`)) {
      const whose = owner ? owner(name) : name;
      const isUnfinished = UNFINISHED.test(name);
      if (isTemporary(name)) add(`${path}/${name}`, 'leftover', '');
      else add(`${path}/${name}`, isUnfinished ? trash(name) : whose === undefined ? 'other' : kind, whose ?? '');
    }
  };
  visit('');
  return places;
}

/** Directories of a store that have what their driver counts. */
const COUNTED = ['layers', 'writable', 'staging', 'trash'];

/** Returns the inode numbers of the directories whose entries count for a place of a store. */
function countedElsewhere(dataRoot: string, stores: readonly Store[], device: bigint): Set<bigint> {
  const found = new Set<bigint>();
  for (const { name } of stores) {
    const counting = countingOf(name);
    if (!counting?.elsewhere) continue;
    for (const place of placesIn(join(dataRoot, name))) {
      const at = counting.elsewhere(place);
      const stat = at === undefined ? undefined : statOf(toBytePath(at));
      if (stat?.dev === device) found.add(stat.ino);
    }
  }
  return found;
}

/** Returns the directories of a store that have what its driver counts. */
function placesIn(store: string): string[] {
  const shelves = COUNTED.map((name) => join(store, name));
  return shelves.flatMap((at) => namesIn(toBytePath(at)).map((name) => join(at, name)));
}

/** Returns what the driver of a store counts in a place of it. */
function ownOf(dataRoot: string, path: string, kind: PlaceKind, owner: string): number {
  const [store = '', shelf = ''] = path.split('/');
  const counting = countingOf(store);
  if (!counting) return 0;
  if (kind !== 'foreign') return COUNTED.includes(shelf) ? counting.own(join(dataRoot, path)) : 0;
  if (path !== owner) return 0;
  return placesIn(join(dataRoot, path)).reduce((sum, at) => sum + counting.own(at), 0);
}

interface PlaceMap {
  readonly shelves: ReadonlyMap<string, Shelf>;
  readonly parents: ReadonlySet<string>;
  readonly engine: ReadonlySet<string>;
  /** Paths with data of drivers that are not the running one, whose names are the values. */
  readonly foreign: ReadonlyMap<string, string>;
}

function mapOf(stores: readonly Store[], running: string | undefined): PlaceMap {
  const shelves = new Map(Object.entries(SHELVES));
  const parents = new Set(['', ...PARENTS]);
  const engine = new Set(ENGINE);
  const foreign = new Map<string, string>();
  for (const { name, prefix, ownPlaces } of stores) {
    const shelvesOfImages = Object.entries(DRIVER_SHELVES).map(([path, what]) => [`${prefix}${path}`, what] as const);
    for (const [path, what] of shelvesOfImages) shelves.set(path, what);
    for (const [path, what] of STORE_SHELVES) shelves.set(`${name}/${path}`, what);
    for (const path of [name, ...PARENTS.map((parent) => `${prefix}${parent}`)]) parents.add(path);
    for (const path of [`${prefix}${REFERENCES}`, ...ownPlaces.map((own) => `${name}/${own}`)]) engine.add(path);
    if (running === undefined || running === name) continue;
    for (const path of [name, `${prefix}${REFERENCES}`, ...shelvesOfImages.map(([shelf]) => shelf)])
      foreign.set(path, name);
  }
  return { shelves, parents, engine, foreign };
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(Buffer.from(directory, 'latin1'), 'latin1').map(toText);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' || (error as NodeJS.ErrnoException).code === 'ENOTDIR')
      return [];
    throw error;
  }
}
