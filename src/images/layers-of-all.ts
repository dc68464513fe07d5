/** Tells which layers belong to images. */
import type { Digest } from '../ports/storage.js';
import type { FileImageStore } from './store.js';

/** Returns a function that returns all layers of all images. They are gathered again after images have changed. */
export function layersOfAll(images: Pick<FileImageStore, 'list' | 'layersOf' | 'onChange'>): () => ReadonlySet<Digest> {
  let known: ReadonlySet<Digest> | undefined;
  images.onChange(() => (known = undefined));
  return () => (known ??= new Set(images.list().flatMap(({ id }) => images.layersOf(id))));
}
