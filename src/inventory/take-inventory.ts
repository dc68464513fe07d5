/** Worker task: every place below the data root with the bytes that it takes on the disk. */
import { readdirSync } from 'node:fs';
import { toBytePath, toText } from '../storage/byte-path.js';
import { statOf } from '../storage/overlay2/merged-view.js';
import { isTemporary } from '../sys/files/durable-file.js';
import type { Place, PlaceKind } from '../ports/inventory.js';
import { BlockCounter } from './block-counter.js';
import { ownMember } from '../text/own-member.js';

export interface TakeInventoryInput {
  readonly dataRoot: string;
  /** Places in whose depths nothing changes, by path: one that is as old as then is not read again. */
  readonly known: ReadonlyMap<string, Pick<Place, 'bytes' | 'mtimeNs'>>;
}

/** Says what kind the entries of a directory are. Undefined: the directory is not looked into and counts as a whole. */
interface Shelf {
  readonly kind: PlaceKind;
  /** The owner from the name of an entry. Undefined: it does not belong there. */
  readonly owner?: (name: string) => string | undefined;
}

const HEX = /^[0-9a-f]{64}$/;
const hexRecord = (name: string): string | undefined =>
  HEX.test(name.replace(/\.json$/, '')) ? name.replace(/\.json$/, '') : undefined;
const hexName = (name: string): string | undefined => (HEX.test(name) ? name : undefined);

/** Directories whose entries are told apart. */
const SHELVES: Readonly<Record<string, Shelf>> = {
  'overlay2/layers': { kind: 'layer' },
  'overlay2/index': { kind: 'layer-record', owner: hexRecord },
  'overlay2/unsynced': { kind: 'layer-mark' },
  'overlay2/writable': { kind: 'writable' },
  'overlay2/staging': { kind: 'staging' },
  'overlay2/trash': { kind: 'trash' },
  'image/content': { kind: 'image', owner: hexName },
  'image/metadata': { kind: 'image-record', owner: hexRecord },
  'image/distribution': { kind: 'push-record', owner: hexRecord },
  'image/partial': { kind: 'partial' },
  containers: { kind: 'container' },
  volumes: { kind: 'volume' },
  tmp: { kind: 'temporary' },
};
/** Single things that the daemon keeps. */
const ENGINE = new Set([
  'engine-id.json',
  'reserve',
  'events',
  'network',
  'supervisor',
  'image/references.json',
  'overlay2/empty',
]);
/** Put aside for the operator, see `References.load`. */
const PUT_ASIDE = /^image\/references\.json\.damaged-\d+$/;
/** The data of a daemon that remaps users, see `dataRootFor`: a data root of its own. */
const REMAPPED = /^\d+\.\d+$/;
/** Directories that hold shelves. */
const PARENTS = new Set(['', 'overlay2', 'image']);
const UNFINISHED = /^\.(?:new|removed)-/;

/** Places in no particular order. What vanishes meanwhile is left out. */
export function takeInventory({ dataRoot, known }: TakeInventoryInput): Place[] {
  const root = toBytePath(dataRoot);
  const places: Place[] = [];
  const counter = new BlockCounter(statOf(root)?.dev ?? 0n);
  const add = (path: string, kind: PlaceKind, owner: string): void => {
    const at = `${root}/${toBytePath(path)}`;
    const stat = statOf(at);
    if (!stat) return;
    const { mtimeNs } = stat;
    const before = known.get(path);
    const bytes =
      before?.mtimeNs === mtimeNs ? before.bytes : kind === 'directory' ? counter.own(stat) : counter.tree(at, stat);
    places.push({ path, kind, owner, bytes, mtimeNs });
  };
  const visit = (path: string): void => {
    add(path, 'directory', '');
    for (const name of namesIn(path === '' ? root : `${root}/${toBytePath(path)}`)) {
      const below = path === '' ? name : `${path}/${name}`;
      const shelf = ownMember(SHELVES, below);
      if (shelf) shelve(below, shelf);
      else if (PARENTS.has(below)) visit(below);
      else if (isTemporary(name)) add(below, 'leftover', '');
      else if (REMAPPED.test(below)) add(below, 'directory', '');
      else add(below, ENGINE.has(below) || PUT_ASIDE.test(below) ? 'engine' : 'other', '');
    }
  };
  const shelve = (path: string, { kind, owner }: Shelf): void => {
    add(path, 'directory', '');
    for (const name of namesIn(`${root}/${toBytePath(path)}`)) {
      const whose = owner ? owner(name) : name;
      const isUnfinished = UNFINISHED.test(name);
      if (isTemporary(name)) add(`${path}/${name}`, 'leftover', '');
      else add(`${path}/${name}`, isUnfinished ? 'trash' : whose === undefined ? 'other' : kind, whose ?? '');
    }
  };
  visit('');
  return places;
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
