/** Removing the images of some platforms from an index. */
import { conflict, invalid, notFound } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import { formatPlatform, type Platform } from '../registry/platform.js';
import { imageFor } from './platform.js';
import { eventAttributes, type RemovalDeps, type RemovedItem, untag } from './removal.js';

export interface PlatformRemovalDeps extends Omit<RemovalDeps, 'users'> {
  /** Lets go of what was kept besides its files of an image that is gone. */
  readonly dropContent: (image: Image) => Promise<void>;
}

/**
 * Removes the images of the platforms; containers keep their files. With the last of them goes the image, with all its
 * names. Nothing is removed unless all platforms are here.
 * @throws EngineError invalid without `force`, because each name of the image loses the platforms; not-found; conflict
 * while the image is being pulled.
 */
export async function removePlatforms(
  deps: PlatformRemovalDeps,
  reference: string,
  platforms: readonly Platform[],
  force: boolean,
): Promise<RemovedItem[]> {
  const { store, emit } = deps;
  const image = store.resolve(reference);
  if (!force)
    throw invalid('Content will be removed from all images referencing this variant. Use —-force to force delete.', {
      code: 'FORCE_NEEDED',
    });
  const found = new Set(platforms.map((platform) => requireOne(image, platform, reference)));
  const removed: RemovedItem[] = [];
  for (const one of found) {
    if (store.isHeld(image.id))
      throw conflict(
        `conflict: unable to delete ${reference} (cannot be forced) - image is being pulled or committed`,
        {
          code: 'IMAGE_CONFLICT',
        },
      );
    const isLast = store.get(image.id)?.platforms === undefined;
    if (isLast) await untag(deps, image.id, store.namesOf(image.id), removed);
    const layers = await store.deletePlatform(one);
    const deleted = isLast ? image.id : (one.published?.own ?? one.id);
    emit('delete', deleted, eventAttributes(one, deleted));
    removed.push({ deleted }, ...layers.map((layer) => ({ deleted: layer })));
    await deps.dropContent(one);
  }
  return removed;
}

function requireOne(image: Image, platform: Platform, reference: string): Image {
  const found = imageFor(image, platform);
  if (found) return found;
  throw notFound(
    `failed to delete platform ${formatPlatform(platform)} for image ${image.id}: image with reference ${reference} ` +
      'was found but does not provide any platform',
    { code: 'PLATFORM_MISMATCH' },
  );
}
