/**
 * Where things are in the store of a driver, `<data-root>/<name of the driver>`:
 *
 *   layers/<short id>/{tar-split,init}  read-only layers, with what the driver keeps of them; `init` lies between one
 *                                       and the containers above it
 *   index/<64 hex of the chain ID>.json  the record that makes a read-only layer exist
 *   writable/<id>/parent                layers of containers, with what the driver keeps of them; `parent` is a link
 *                                       whose text is the chain ID; without an image `init` is here; `id-maps` is
 *                                       there when it has users of its own
 *   unsynced/<short id>                 layers whose data may not be on the disk yet (durability.ts)
 *   staging/<random>                    being filled; moved into one of the above when complete
 *   trash/<random>                      moved out of one of the above, being deleted
 *
 * After a crash staging and trash hold nothing of value.
 */
import { randomBytes } from 'node:crypto';
import { basename, join } from 'node:path';
import { randomName } from '../random-name.js';
import type { Digest } from '../../ports/storage.js';

/** Name of the directory in a staged layer that its difference is unpacked into. */
export const DIFFERENCE = 'diff';

/** Name of the file in the directory of a layer that its tar is rebuilt with. */
export const TAR_SPLIT = 'tar-split';

/** Path below the data root of a layer (`layers`) or a container (`writable`). */
export function storePath(driver: string, shelf: 'layers' | 'writable', name: string): string {
  return `${driver}/${shelf}/${name}`;
}

export class Layout {
  readonly layers: string;
  readonly index: string;
  readonly writable: string;
  readonly staging: string;
  readonly trash: string;
  readonly unsynced: string;
  readonly #staged = new Set<string>();

  constructor(readonly root: string) {
    this.layers = join(root, 'layers');
    this.index = join(root, 'index');
    this.writable = join(root, 'writable');
    this.staging = join(root, 'staging');
    this.trash = join(root, 'trash');
    this.unsynced = join(root, 'unsynced');
  }

  layer(shortId: string): string {
    return join(this.layers, shortId);
  }

  /** Returns the directory of a container. */
  container(id: string): string {
    return join(this.writable, id);
  }

  init(shortId: string): string {
    return join(this.layers, shortId, 'init');
  }

  tarSplit(shortId: string): string {
    return join(this.layers, shortId, TAR_SPLIT);
  }

  indexRecord(chainId: Digest): string {
    return join(this.index, `${chainId.slice('sha256:'.length)}.json`);
  }

  /** Returns a new name in the staging directory, in use until `leaveStaging`. */
  newStaging(): string {
    const name = randomName();
    this.#staged.add(name);
    return join(this.staging, name);
  }

  /** Tells that the data staged under this path have been moved or removed. */
  leaveStaging(path: string): void {
    this.#staged.delete(basename(path));
  }

  /** Returns the names in use in the staging directory. */
  staged(): string[] {
    return [...this.#staged];
  }
}

/**
 * Returns a random name of six characters: the options of a mount must fit into one page, and they name every layer. A
 * name that is taken is noticed when the directory is moved into place.
 */
export function shortId(): string {
  return randomBytes(8).readBigUInt64LE().toString(36).slice(-6).padStart(6, '0');
}
