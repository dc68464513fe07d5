/** Removing images and names by the rules of the Engine API: what must be forced, what cannot be, what goes along. */
import { conflict, type EngineError, isEngineError } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import type { Digest } from '../ports/storage.js';
import { canonicalName, canonicalString, familiarString, parseReference, withDefaultTag } from './reference.js';
import type { FileImageStore } from './store.js';
import { eventLabels } from '../text/event-labels.js';

export interface ImageUser {
  /** Container ID. */
  readonly id: string;
  readonly running: boolean;
  /** Digest of the manifest of its image's platform, where it had one. */
  readonly manifest?: string | undefined;
}

/** Returns the containers made from an image. */
export type ImageUsers = (id: Digest) => readonly ImageUser[];

/** Called with what happened to an image; `name` is its name at that moment, or its ID. */
export type ImageEmit = (action: string, id: string, attributes: Readonly<Record<string, string>>) => void;

/** A name that was taken away, or an image or layer that was deleted; a layer goes by its chain ID. */
export type RemovedItem = { readonly untagged: string } | { readonly deleted: string };

export interface RemovalDeps {
  readonly store: FileImageStore;
  readonly users: ImageUsers;
  readonly emit: ImageEmit;
}

export interface RemovalOptions {
  readonly force: boolean;
  /** If true, parents that nothing names or uses any more are removed, too. */
  readonly pruneParents: boolean;
}

const short = (id: string): string => id.replace(/^sha256:/, '').slice(0, 12);

/** Returns the attributes of image events: the labels and a name. */
export function eventAttributes(image: Image, name: string): Record<string, string> {
  return { ...eventLabels(image.config.config?.Labels), name };
}

/**
 * Removes a name or, when nothing else names it, the image. Throws not-found; or conflict with a text that says what
 * uses the image. Nothing has changed then.
 */
export async function removeImage(
  deps: RemovalDeps,
  reference: string,
  options: RemovalOptions,
): Promise<RemovedItem[]> {
  const { store, users } = deps;
  const { id } = store.resolve(reference);
  const names = store.namesOf(id);
  const records: RemovedItem[] = [];
  if (store.isIdReference(reference)) {
    if (namesOneRepository(names)) {
      checkConflict(deps, id, { force: options.force, names: false });
      await untag(deps, id, names, records);
    }
    await deleteImage(deps, id, options, false, records);
    return records;
  }

  const user = users(id)[0];
  if (!options.force && user && namesOneRepository(names)) {
    throw conflict(
      `conflict: unable to remove repository reference ${JSON.stringify(reference)} (must force) - ` +
        `container ${short(user.id)} is using its referenced image ${short(id)}`,
      { code: 'IMAGE_IN_USE' },
    );
  }
  const removed = withDefaultTag(parseReference(reference));
  const key = removed.digest === undefined ? canonicalString(removed) : `${canonicalName(removed)}@${removed.digest}`;
  await untag(deps, id, [key, ...strandedDigests(names, key, removed.digest !== undefined)], records);
  if (store.namesOf(id).length === 0) await deleteImage(deps, id, options, true, records);
  return records;
}

/** True when all names are one tag (or none) and the digests of the same repository. */
function namesOneRepository(names: readonly string[]): boolean {
  const parsed = names.map(parseReference);
  const tags = parsed.filter(({ digest }) => digest === undefined);
  return names.length <= 1 || (tags.length <= 1 && new Set(parsed.map(canonicalName)).size === 1);
}

/** Returns the digests that go along with `key`: no other tag of their repository would be left. */
function strandedDigests(names: readonly string[], key: string, keyIsDigest: boolean): string[] {
  if (keyIsDigest) return [];
  const repository = canonicalName(parseReference(key));
  const others = names.filter((name) => name !== key && canonicalName(parseReference(name)) === repository);
  return others.every((name) => name.includes('@')) ? others : [];
}

/** Takes names of an image away, and tells of each. */
export async function untag(
  { store, emit }: Pick<RemovalDeps, 'store' | 'emit'>,
  id: Digest,
  keys: readonly string[],
  records: RemovedItem[],
): Promise<void> {
  if (keys.length === 0) return;
  const image = store.get(id);
  await store.untag(keys);
  for (const key of keys) {
    if (image) emit('untag', id, eventAttributes(image, id));
    records.push({ untagged: familiarString(parseReference(key)) });
  }
}

/** Throws the first reason against a removal; `force` overrules soft reasons. */
function checkConflict(
  { store, users }: RemovalDeps,
  id: Digest,
  ask: { readonly force: boolean; readonly names: boolean },
): void {
  const refuse = (isHard: boolean, isUsed: boolean, reason: string): EngineError =>
    conflict(`conflict: unable to delete ${short(id)} (${isHard ? 'cannot' : 'must'} be forced) - ${reason}`, {
      code: 'IMAGE_CONFLICT',
      details: { isUsed },
    });
  if (store.childrenOf(id).length > 0) throw refuse(true, false, 'image has dependent child images');
  if (store.isHeld(id)) throw refuse(true, true, 'image is being pulled or committed');
  const containers = users(id);
  const running = containers.find((user) => user.running);
  if (running) throw refuse(true, true, `image is being used by running container ${short(running.id)}`);
  if (ask.force) return;
  if (ask.names && store.namesOf(id).length > 0)
    throw refuse(false, false, 'image is referenced in multiple repositories');
  const stopped = containers[0];
  if (stopped) throw refuse(false, true, `image is being used by stopped container ${short(stopped.id)}`);
}

/**
 * Deletes an image. @param isConsequence the image lost its last name or child; a reason to keep it is then no error.
 */
async function deleteImage(
  deps: RemovalDeps,
  id: Digest,
  options: RemovalOptions,
  isConsequence: boolean,
  records: RemovedItem[],
): Promise<void> {
  const { store, emit } = deps;
  try {
    checkConflict(deps, id, { force: options.force, names: true });
  } catch (error) {
    const isUsed = isEngineError(error) && error.details['isUsed'] === true;
    const isDangling = store.namesOf(id).length === 0 && store.childrenOf(id).length === 0;
    if (isConsequence && (isUsed || !isDangling)) return;
    throw error;
  }
  const image = store.get(id);
  if (!image) return; // another removal was faster
  await untag(deps, id, store.namesOf(id), records);
  const layers = await store.delete(id);
  emit('delete', id, eventAttributes(image, id));
  records.push({ deleted: id }, ...layers.map((layer) => ({ deleted: layer })));
  const parent = image.parent === '' ? undefined : store.get(image.parent as Digest);
  if (options.pruneParents && parent) await deleteImage(deps, parent.id, { ...options, force: false }, true, records);
}
