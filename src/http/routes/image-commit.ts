/** POST /commit: an image of what a container has written. */
import type { EarlierTold } from '../../actors/engine/told-events.js';
import { commitImage } from '../../images/commit.js';
import { platformsOf } from '../../images/platform.js';
import { isDigest, newName } from '../../images/reference.js';
import { eventAttributes, type ImageEmit } from '../../images/removal.js';
import type { FileImageStore } from '../../images/store.js';
import type { ContainerConfig } from '../../ports/container.js';
import type { Image } from '../../ports/images.js';
import type { Attempt } from '../../ports/kept-replies.js';
import type { LayerStore } from '../../ports/storage.js';
import { decodeCommitConfig } from '../api/images.js';
import type { Exchange } from '../exchange.js';

/** A container that is being committed. */
export interface CommitSource {
  readonly id: string;
  readonly config: ContainerConfig;
  /** ID of the image that the container was made from. */
  readonly image: string;
  /** Digest of the manifest of the image's platform, where it had one. */
  readonly manifest: string | undefined;
}

export interface CommitSources {
  /**
   * Calls `use` while the container (ID, name or prefix) is paused, if it runs and `pause` says so. Throws not-found,
   * and conflict for a container that cannot be committed now.
   */
  withStill<T>(container: string, pause: boolean, use: (source: CommitSource) => Promise<T>): Promise<T>;
  /** Announces the commit as an event of the container. */
  committed(container: string, attributes: Readonly<Record<string, string>>): void;
}

export interface CommitDeps {
  readonly images: FileImageStore;
  readonly layers: LayerStore;
  readonly earlier: EarlierTold;
  readonly emit: ImageEmit;
  readonly containers: CommitSources;
  /** Architecture of images that are not made from another one: `amd64`. */
  readonly architecture: string;
}

/**
 * Returns the time of creation for an image, as it is written down. That of an attempt has digits of its own below the
 * millisecond, so that what it made is known again.
 */
function creationTime(attempt: Attempt | undefined): string {
  const time = new Date(attempt?.begunMs ?? Date.now()).toISOString();
  if (attempt === undefined) return time;
  const digits = Number.parseInt(attempt.id.slice(0, 12), 16) % 1_000_000;
  return time.replace('Z', `${String(digits).padStart(6, '0')}Z`);
}

/** Returns the image that a commit of the container has made at that time. */
function committedAt(images: FileImageStore, container: string, created: string): Image | undefined {
  return images.list().find(({ config }) => config.created === created && config.container === container);
}

/** Returns the image of a container, of the platform that it was made for. */
function imageOfSource(images: FileImageStore, { image: id, manifest }: CommitSource): Image | undefined {
  const image = isDigest(id) ? images.get(id) : undefined;
  return image && (platformsOf(image).find(({ published }) => published?.own === manifest) ?? image);
}

export async function commit(x: Exchange, deps: CommitDeps): Promise<void> {
  const { images, layers, containers, earlier } = deps;
  const { query } = x;
  const config = decodeCommitConfig(await x.optionalJson<unknown>());
  const repo = query.text('repo');
  const reference = repo === '' ? undefined : newName(repo, query.text('tag'));
  const comment = query.text('comment');
  const name = query.text('container');
  const created = creationTime(x.attempt);
  const image = await containers.withStill(name, query.flagOr('pause', true), async (source) => {
    const before = x.attempt?.isInterrupted === true ? committedAt(images, source.id, created) : undefined;
    if (before !== undefined && reference !== undefined) await images.tag(reference, before.id);
    const made =
      before ??
      (await commitImage(
        { images, layers },
        {
          created,
          containerId: source.id,
          containerConfig: source.config,
          image: imageOfSource(images, source),
          config,
          changes: query.all('changes'),
          author: query.text('author'),
          comment,
          reference,
          architecture: deps.architecture,
          // Under a key, the client may ask again for what came of it.
          signal: x.attempt ? undefined : x.signal,
        },
      ));
    if (!(await earlier.has(x.attempt, ['container', 'commit', source.id], { imageID: made.id })))
      containers.committed(source.id, { comment, imageID: made.id, imageRef: reference ?? '' });
    if (!(await earlier.has(x.attempt, ['image', 'create', made.id], {})))
      deps.emit('create', made.id, eventAttributes(made, made.id));
    return made;
  });
  if (reference !== undefined && !(await earlier.has(x.attempt, ['image', 'tag', image.id], { name: reference })))
    deps.emit('tag', image.id, eventAttributes(image, reference));
  x.sendJson(201, { Id: image.id });
}
