/** Finds the images and names that a save is about. */
import { invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import type { Image } from '../../ports/images.js';
import type { Digest } from '../../ports/storage.js';
import type { Platform } from '../../registry/platform.js';
import { isOfIndex, requirePlatform } from '../platform.js';
import { canonicalName, canonicalString, isDigest, parseReference } from '../reference.js';
import type { FileImageStore } from '../store.js';

export interface SavedImage {
  readonly image: Image;
  /** Canonical names with tags, in the order they were asked for; an image asked for by ID has none. */
  readonly names: readonly string[];
  /** Without the other images of its index. */
  readonly isAlone: boolean;
}

/**
 * Finds the images. A name without a tag stands for all tags of the repository. Images come in the order of the names.
 * @throws EngineError not-found, with the texts of the Docker engine; invalid for a malformed name or for no name.
 */
export function selectSaved(
  store: FileImageStore,
  names: readonly string[],
  platform: Platform | undefined,
): SavedImage[] {
  if (names.length === 0) throw invalid('no image was named', { code: 'MISSING_PARAMETER' });
  const selected = new Map<Digest, { readonly image: Image; readonly keys: Set<string> }>();
  for (const name of names) {
    for (const { id, key } of imagesOf(store, name)) {
      const found = store.resolve(id);
      const image = platform ? ofPlatform(found, platform, name) : found;
      const { keys } = selected.get(id) ?? { keys: new Set() };
      selected.set(id, { image, keys });
      if (key !== undefined && !key.includes('@')) keys.add(key);
    }
  }
  return [...selected.values()].map(({ image, keys }) => ({
    image,
    names: [...keys],
    isAlone: platform !== undefined,
  }));
}

function ofPlatform(image: Image, platform: Platform, name: string): Image {
  try {
    return requirePlatform(image, platform, name);
  } catch (error) {
    if (!isOfIndex(image) || !isEngineError(error)) throw error;
    throw notFound(`no suitable export target found: ${error.message}`, { code: 'PLATFORM_MISMATCH', cause: error });
  }
}

function imagesOf(store: FileImageStore, name: string): readonly { readonly id: Digest; readonly key?: string }[] {
  if (isDigest(name) || /^[a-f0-9]{64}$/.test(name) || name.startsWith('sha256:'))
    return [{ id: store.resolve(name).id }];
  const reference = parseReference(name);
  if (reference.tag === undefined && reference.digest === undefined) {
    const repository = canonicalName(reference);
    const found = store
      .list()
      .flatMap(({ id }) =>
        store.namesOf(id).flatMap((key) => (canonicalName(parseReference(key)) === repository ? [{ id, key }] : [])),
      );
    if (found.length > 0) return found;
    const id = store.idOf(name);
    if (id === undefined) throw notFound(`No such image: ${name}`, { code: 'NO_SUCH_IMAGE' });
    return [{ id }];
  }
  const id = store.idOf(name);
  if (id === undefined) throw notFound('reference does not exist', { code: 'NO_SUCH_IMAGE' });
  return [{ id, key: canonicalString(reference) }];
}
