/** Which images were made here from which. */
import type { Digest } from '../ports/storage.js';
import type { ImageEntry } from './image-entry.js';

type Child = Pick<ImageEntry, 'id' | 'metadata'>;

export class ImageChildren {
  readonly #ids = new Map<string, Set<Digest>>();

  of(parent: Digest): readonly Digest[] {
    return [...(this.#ids.get(parent) ?? [])];
  }

  add({ id, metadata: { parent } }: Child): void {
    if (parent === '') return;
    const siblings = this.#ids.get(parent);
    if (siblings) siblings.add(id);
    else this.#ids.set(parent, new Set([id]));
  }

  remove({ id, metadata: { parent } }: Child): void {
    const siblings = this.#ids.get(parent);
    siblings?.delete(id);
    if (siblings?.size === 0) this.#ids.delete(parent);
  }
}
