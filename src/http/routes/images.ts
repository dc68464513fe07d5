/** Image operations of the Engine API. */
import { conflict, forbidden, internal, invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { EarlierTold } from '../../actors/engine/told-events.js';
import type { Pulls } from '../../actors/pull/pulls.js';
import { requirePlatform } from '../../images/platform.js';
import { chainOf } from '../../ports/chain-id.js';
import { commitImage } from '../../images/commit.js';
import { historyOf } from '../../images/history.js';
import { type ImportRequest, openUrl } from '../../images/import.js';
import { type PruneDeps, pruneImages } from '../../images/prune.js';
import {
  familiarString,
  type ImageReference,
  isDigest,
  isTag,
  parseReference,
  withDefaultTag,
  withTagOrDigest,
} from '../../images/reference.js';
import { eventAttributes, type ImageEmit, type ImageUsers, removeImage } from '../../images/removal.js';
import { selectImages } from '../../images/selection.js';
import type { FileImageStore } from '../../images/store.js';
import type { ContainerConfig } from '../../ports/container.js';
import type { Image } from '../../ports/images.js';
import type { Attempt } from '../../ports/kept-replies.js';
import type { ProgressFact } from '../../ports/progress.js';
import type { LayerStore } from '../../ports/storage.js';
import { decodeCredentials } from '../../registry/credentials.js';
import type { PartialBlobs } from '../../registry/partial-blobs.js';
import type { PulledBlobs } from '../../registry/pulled-blobs.js';
import { hostPlatform, parsePlatform, type Platform } from '../../registry/platform.js';
import { parseFilters } from '../api/filters.js';
import { platformObject } from '../api/platform.js';
import { encodeProgress, TYPED_PROGRESS } from '../api/progress.js';
import { type ContentBytes, ImageManifests } from '../api/image-manifests.js';
import {
  decodeCommitConfig,
  decodePrune,
  decodeSelection,
  historyJson,
  inspectJson,
  summaryJson,
  removedJson,
} from '../api/images.js';
import type { Exchange } from '../exchange.js';
import { pump, type ResponseStream } from '../response-stream.js';
import { ONCE, route, type Route } from '../route.js';

/** A container that is being committed. */
export interface CommitSource {
  readonly id: string;
  readonly config: ContainerConfig;
  /** ID of the image that the container was made from. */
  readonly image: string;
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

export interface ImageRouteDeps {
  readonly images: FileImageStore;
  readonly layers: LayerStore;
  readonly partials: Pick<PartialBlobs, 'prune'>;
  /** Blobs of pulled layers; `trim` removes those of layers that are gone. */
  readonly pulledBlobs: Pick<PulledBlobs, 'trim'> | undefined;
  readonly pulls: Pick<Pulls, 'pull' | 'pullAllTags'>;
  readonly users: ImageUsers;
  /** Returns how many containers are made from each image, by its ID; images of none are left out. */
  readonly countUsers: () => ReadonlyMap<string, number>;
  readonly earlier: EarlierTold;
  readonly emit: ImageEmit;
  readonly containers: CommitSources;
  readonly importer: (request: ImportRequest) => Promise<Image>;
  readonly layerBytes: PruneDeps['layerBytes'];
  readonly contentBytes: ContentBytes;
  /** Architecture of images that are not made from another one: `amd64`. */
  readonly architecture: string;
}

export function imageRoutes(deps: ImageRouteDeps): Route[] {
  const { images, layers, emit, users } = deps;
  const removal = { store: images, users, emit };
  let isPruning = false;

  return [
    route('GET', '/images/json', (x) => listImages(x, deps)),

    route('POST', '/images/create', (x) => createImage(x, deps), {
      body: 'archive',
      // Pulls of one image join each other. An import has no key, as what it brings is not compared.
      retry: (x) => (x.query.text('fromImage') === '' ? undefined : 'shared'),
    }),

    route('GET', '/images/{name...}/json', (x) => inspectImage(x, deps)),

    route('GET', '/images/{name...}/history', (x) => {
      const image = images.resolve(x.param('name'));
      const platform = x.query.text('platform');
      if (platform !== '' && x.atLeast(1, 48)) requirePlatform(image, platformObject(platform), x.param('name'));
      x.sendJson(200, historyOf(image, images, layers).map(historyJson));
    }),

    route('POST', '/images/{name...}/tag', async (x) => {
      const reference = newName(x.query.text('repo'), x.query.text('tag'));
      const { id } = images.resolve(x.param('name'));
      await images.tag(reference, id);
      const image = images.get(id);
      if (image) emit('tag', id, eventAttributes(image, reference));
      x.sendEmpty(201);
    }),

    route('POST', '/images/prune', async (x) => {
      const filters = parseFilters(x.query.text('filters'));
      const selection = decodePrune(filters, Date.now());
      if (isPruning) throw conflict('a prune operation is already running', { code: 'PRUNE_RUNNING' });
      isPruning = true;
      try {
        const { removed, reclaimedBytes } = await pruneImages(
          { ...removal, layers, layerBytes: deps.layerBytes },
          selection,
          x.signal,
        );
        // The rests of broken downloads belong to no image that a filter could describe.
        const partialBytes = ['until', 'label', 'label!'].some((key) => filters.has(key))
          ? 0
          : await deps.partials.prune();
        const blobBytes = (await deps.pulledBlobs?.trim()) ?? 0;
        x.sendJson(200, {
          ImagesDeleted: removed.length > 0 ? removedJson(removed) : null,
          SpaceReclaimed: reclaimedBytes + partialBytes + blobBytes,
        });
      } finally {
        isPruning = false;
      }
    }),

    route('DELETE', '/images/{name...}', async (x) => {
      const name = x.param('name');
      if (name.trim() === '') throw invalid('image name cannot be blank', { code: 'INVALID_REFERENCE' });
      const platforms = x.atLeast(1, 50) ? x.query.all('platforms').map(platformObject) : [];
      if (platforms.length > 1) throw invalid('multiple platforms are not supported', { code: 'MULTIPLE_PLATFORMS' });
      for (const platform of platforms) requirePlatform(images.resolve(name), platform, name);
      const options = { force: x.query.flag('force'), pruneParents: !x.query.flag('noprune') };
      x.sendJson(200, removedJson(await removeImage(removal, name, options)));
    }),

    route('POST', '/commit', (x) => commit(x, deps), { retry: ONCE }),
  ];
}

function listImages(x: Exchange, deps: ImageRouteDeps): void {
  const { images, layers, users, countUsers, contentBytes } = deps;
  const filters = x.query.text('filters');
  const selection = decodeSelection(parseFilters(filters), x.query.flag('all'), Date.now());
  const legacy = x.atLeast(1, 41) ? '' : x.query.text('filter');
  const selected = selectImages(
    images,
    legacy === '' ? selection : { ...selection, reference: [...selection.reference, legacy] },
  );
  const shared = x.atLeast(1, 42) && x.query.flag('shared-size') ? sharedSizes(images.list(), layers) : undefined;
  const manifestsOf =
    x.atLeast(1, 47) && x.query.flag('manifests') ? new ImageManifests(images.list(), users, contentBytes) : undefined;
  const counts = x.atLeast(1, 51) ? countUsers() : undefined;
  const items = selected.map((one) => {
    const { image } = one;
    const figures = {
      containers: counts && (counts.get(image.id) ?? 0),
      sharedSize: shared?.get(image.id),
      manifests: manifestsOf?.of(image),
      contentBytes: contentBytes(image),
    };
    return summaryJson(one, figures, (major, minor) => x.atLeast(major, minor));
  });
  x.sendJson(200, items);
}

function inspectImage(x: Exchange, { images, layers, users, contentBytes }: ImageRouteDeps): void {
  const platform = x.query.text('platform');
  const withManifests = x.atLeast(1, 48) && x.query.flag('manifests');
  if (platform !== '' && withManifests) {
    throw invalid('conflicting options: manifests and platform options cannot both be set', {
      code: 'CONFLICTING_OPTIONS',
    });
  }
  const image = images.resolve(x.param('name'));
  if (platform !== '' && x.atLeast(1, 49)) requirePlatform(image, platformObject(platform), x.param('name'));
  // Compose 1 speaks the newest version that it is offered, but cannot recreate a container without members that went
  // with 1.45.
  const isCompose1 = x.header('user-agent')?.startsWith('docker-compose/1.') === true;
  const graphDriver = { Name: layers.driver, Data: image.topLayer ? layers.layerData(image.topLayer) : null };
  const manifests = withManifests ? new ImageManifests(images.list(), users, contentBytes).of(image) : undefined;
  const parts = { graphDriver, manifests, size: sizeOf(image, contentBytes(image)) };
  x.sendJson(
    200,
    inspectJson(image, parts, (major, minor) => x.atLeast(major, minor) && !isCompose1),
  );
}

/** Returns the size of an image alone: of all that is kept as registries have it, or else of its files. */
function sizeOf({ sizeBytes, published }: Image, contentBytes: number | undefined): number {
  if (contentBytes === undefined) return sizeBytes;
  return contentBytes + (published && published.target.digest !== published.own ? published.target.size : 0);
}

async function createImage(x: Exchange, deps: ImageRouteDeps): Promise<void> {
  const { pulls } = deps;
  const fromImage = x.query.text('fromImage');
  const fromSrc = x.query.text('fromSrc');
  const platform =
    x.atLeast(1, 32) && x.query.text('platform') !== '' ? parsePlatform(x.query.text('platform')) : undefined;
  if (fromImage === '' && fromSrc === '')
    throw invalid('one of the parameters fromImage and fromSrc is needed', { code: 'MISSING_PARAMETER' });
  if (fromImage === '') return createFromArchive(x, deps, fromSrc, platform ?? { ...hostPlatform(), variant: '' });
  const reference = pullReference(fromImage, x.query.text('tag'));
  const credentials = decodeCredentials(x.header('x-registry-auth'));
  const request = { reference, platform, credentials };
  const isOne = reference.tag !== undefined || reference.digest !== undefined;
  const form = x.header('accept')?.includes(TYPED_PROGRESS) === true ? 'typed' : 'classic';
  const joining = isOne ? pulls.pull(request, x.signal, form) : pulls.pullAllTags(request, x.signal, form);
  const subscription = await joining.catch((error: unknown) => {
    // With a 401 the CLI asks for a password and waits for ever, even where nobody can type one.
    throw isEngineError(error, 'unauthorized')
      ? internal(error.message, { code: 'PULL_UNAUTHORIZED', cause: error })
      : error;
  });
  const stream = x.stream(200, { 'Content-Type': form === 'typed' ? TYPED_PROGRESS : 'application/json' });
  await pump(subscription, stream, () => {
    if (subscription.outcome === 'failed') x.noteFailure();
  });
}

const REPORT_INTERVAL_MS = 100;

/** Imports an archive: the body (`-`), or what a URL gives, becomes an image of one layer. */
async function createFromArchive(
  x: Exchange,
  deps: ImageRouteDeps,
  fromSrc: string,
  platform: Platform,
): Promise<void> {
  const { query } = x;
  const repo = query.text('repo');
  const reference = repo === '' ? undefined : newName(repo, query.text('tag'));
  if (platform.os !== 'linux') throw invalid('operating system is not supported', { code: 'FOREIGN_OS' });
  const remote = fromSrc === '-' ? undefined : await openUrl(fromSrc, x.signal);
  const source = remote?.body ?? (x.bodyStream() as AsyncIterable<Buffer>);

  let stream: ResponseStream | undefined;
  const say = (fact: ProgressFact): void => {
    stream ??= x.stream(200, { 'Content-Type': 'application/json' });
    stream.write(encodeProgress(fact));
  };
  if (remote) say({ kind: 'line', text: `Downloading from ${remote.url.origin}${remote.url.pathname}` });
  let reportedAt = 0;
  const onProgress = (current: number): void => {
    // A client that sends an archive knows how far it is, so it gets no progress, but a status of its own when the
    // import fails.
    if (!remote || Date.now() - reportedAt < REPORT_INTERVAL_MS) return;
    reportedAt = Date.now();
    say({ kind: 'bytes', status: 'Downloading', id: '', current, total: remote.totalBytes });
  };
  const comment =
    query.text('message') || `Imported from ${remote ? `${remote.url.origin}${remote.url.pathname}` : '-'}`;
  try {
    const image = await deps.importer({
      source,
      reference,
      comment,
      changes: query.all('changes'),
      platform,
      onProgress,
      signal: x.signal,
    });
    deps.emit('import', image.id, eventAttributes(image, image.id));
    if (reference !== undefined) deps.emit('tag', image.id, eventAttributes(image, reference));
    say({ kind: 'line', text: image.id });
  } catch (error) {
    // Before the first byte the error is the reply.
    if (!stream) throw error;
    x.noteFailure();
    say({ kind: 'failed', message: messageOf(error) });
  }
  stream?.end();
}

/**
 * Returns the reference of a pull: without tag and digest it means all tags. A digest wins over a tag, as it says more.
 */
function pullReference(fromImage: string, tagOrDigest: string): ImageReference {
  const written = parseReference(fromImage.replace(/:$/, ''));
  const wanted = tagOrDigest === '' ? written : withTagOrDigest(written, tagOrDigest);
  if (familiarString({ domain: wanted.domain, path: wanted.path }) === 'scratch')
    throw forbidden("'scratch' is a reserved name", { code: 'RESERVED_NAME' });
  const { domain, path, digest } = wanted;
  return digest === undefined ? wanted : { domain, path, digest };
}

/** Returns the name to give an image, familiar and with a tag. */
function newName(repo: string, tag: string): string {
  const written = parseReference(repo);
  if (written.digest !== undefined) throw invalid('cannot import digest reference', { code: 'INVALID_REFERENCE' });
  if (tag !== '' && !isTag(tag)) throw invalid('invalid tag format', { code: 'INVALID_REFERENCE' });
  const named = withDefaultTag(tag === '' ? written : { ...written, tag });
  if (familiarString({ domain: named.domain, path: named.path }) === 'sha256') {
    throw invalid('refusing to create an ambiguous tag using digest algorithm as name', { code: 'INVALID_REFERENCE' });
  }
  return familiarString(named);
}

/** Returns how many bytes of each image's layers other images have too. */
function sharedSizes(all: readonly Image[], layers: LayerStore): ReadonlyMap<string, number> {
  const owners = new Map<string, number>();
  const chains = all.map(({ config }) => chainOf(config.rootfs.diff_ids));
  for (const chain of chains) for (const chainId of chain) owners.set(chainId, (owners.get(chainId) ?? 0) + 1);
  return new Map(
    all.map(({ id }, index) => {
      const shared = (chains[index] ?? []).filter((chainId) => (owners.get(chainId) ?? 0) > 1);
      return [id, shared.reduce((sum, chainId) => sum + (layers.find(chainId)?.sizeBytes ?? 0), 0)];
    }),
  );
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

async function commit(x: Exchange, deps: ImageRouteDeps): Promise<void> {
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
          image: isDigest(source.image) ? images.get(source.image) : undefined,
          config,
          changes: query.all('changes'),
          author: query.text('author'),
          comment,
          reference,
          architecture: deps.architecture,
        },
      ));
    if (!(await earlier.has(x.attempt, ['container', 'commit', source.id], { imageID: made.id })))
      containers.committed(source.id, { comment, imageID: made.id, imageRef: reference ?? '' });
    return made;
  });
  if (reference !== undefined && !(await earlier.has(x.attempt, ['image', 'tag', image.id], { name: reference })))
    deps.emit('tag', image.id, eventAttributes(image, reference));
  x.sendJson(201, { Id: image.id });
}
