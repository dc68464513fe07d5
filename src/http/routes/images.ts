/** Image operations of the Engine API. */
import { conflict, forbidden, internal, invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { Pulls } from '../../actors/pull/pulls.js';
import { isOfIndex, requirePlatform } from '../../images/platform.js';
import { historyOf } from '../../images/history.js';
import { type ImportRequest, openUrl } from '../../images/import.js';
import { type PruneDeps, pruneImages } from '../../images/prune.js';
import {
  familiarString,
  type ImageReference,
  newName,
  parseReference,
  withTagOrDigest,
} from '../../images/reference.js';
import {
  eventAttributes,
  type ImageUsers,
  type RemovalDeps,
  type RemovalOptions,
  type RemovedItem,
  removeImage,
} from '../../images/removal.js';
import { removePlatforms } from '../../images/platform-removal.js';
import { type SelectedImage, selectImages } from '../../images/selection.js';
import type { FileImageStore } from '../../images/store.js';
import type { Image } from '../../ports/images.js';
import type { ProgressFact } from '../../ports/progress.js';
import type { LayerStore } from '../../ports/storage.js';
import { decodeCredentials } from '../../registry/credentials.js';
import type { PartialBlobs } from '../../registry/partial-blobs.js';
import type { PulledBlobs } from '../../registry/pulled-blobs.js';
import { hostPlatform, parsePlatform, type Platform } from '../../registry/platform.js';
import { parseFilters } from '../api/filters.js';
import { platformObject } from '../api/platform.js';
import { encodeProgress, TYPED_PROGRESS } from '../api/progress.js';
import { type ContentBytes, contentSum, ImageManifests } from '../api/image-manifests.js';
import { decodePrune, decodeSelection, historyJson, inspectJson, summaryJson, removedJson } from '../api/images.js';
import type { Exchange } from '../exchange.js';
import { listPieces, sendJsonParts, WHOLE_LIST_CHARS } from '../parts-reply.js';
import { pump, type ResponseStream } from '../response-stream.js';
import { ONCE, route, type Route } from '../route.js';
import { commit, type CommitDeps } from './image-commit.js';

export interface ImageRouteDeps extends CommitDeps {
  readonly partials: Pick<PartialBlobs, 'prune'>;
  /** Blobs of pulled layers; `trim` removes those of layers that are gone. */
  readonly pulledBlobs: Pick<PulledBlobs, 'trim' | 'removedBytes'> | undefined;
  readonly pulls: Pick<Pulls, 'pull' | 'pullAllTags'>;
  readonly users: ImageUsers;
  /** Returns how many containers are made from each image, by its ID; images of none are left out. */
  readonly countUsers: () => ReadonlyMap<string, number>;
  readonly importer: (request: ImportRequest) => Promise<Image>;
  readonly layerBytes: PruneDeps['layerBytes'];
  readonly contentBytes: ContentBytes;
  /** Lets go of what was kept besides its files of an image that is gone. */
  readonly dropContent: (image: Image) => Promise<void>;
}

export function imageRoutes(deps: ImageRouteDeps): Route[] {
  const { images, layers, emit, users, pulledBlobs } = deps;
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
      const name = x.param('name');
      const platform = x.atLeast(1, 48) ? x.query.text('platform') : '';
      const found = images.resolve(name);
      const image = platform === '' ? found : requirePlatform(found, platformObject(platform), name);
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
      const blobBytesBefore = pulledBlobs?.removedBytes ?? 0;
      try {
        const { removed, reclaimedBytes } = await pruneImages(
          { ...removal, layerBytes: deps.layerBytes },
          selection,
          x.signal,
        );
        // The rests of broken downloads belong to no image that a filter could describe.
        const partialBytes = ['until', 'label', 'label!'].some((key) => filters.has(key))
          ? 0
          : await deps.partials.prune();
        // They go by themselves soon after their layers: some may have gone while the prune went on.
        await pulledBlobs?.trim();
        const blobBytes = (pulledBlobs?.removedBytes ?? 0) - blobBytesBefore;
        await layers.reclaimed();
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
      const options = { force: x.query.flag('force'), pruneParents: !x.query.flag('noprune') };
      const removed = await (platforms.length > 0 && isOfIndex(images.resolve(name))
        ? removePlatforms({ ...removal, dropContent: deps.dropContent }, name, platforms, options.force)
        : removeWhole(removal, name, platforms, options));
      x.sendJson(200, removedJson(removed));
    }),

    route('POST', '/commit', (x) => commit(x, deps), { retry: ONCE }),
  ];
}

/** Removes an image that has one platform only, and so goes with it. */
function removeWhole(
  deps: RemovalDeps,
  name: string,
  platforms: readonly Platform[],
  options: RemovalOptions,
): Promise<RemovedItem[]> {
  if (platforms.length > 1) throw invalid('multiple platforms are not supported', { code: 'MULTIPLE_PLATFORMS' });
  for (const platform of platforms) requirePlatform(deps.store.resolve(name), platform, name);
  return removeImage(deps, name, options);
}

async function listImages(x: Exchange, deps: ImageRouteDeps): Promise<void> {
  const { images, layers, users, countUsers, contentBytes } = deps;
  const filters = x.query.text('filters');
  const selection = decodeSelection(parseFilters(filters), x.query.flag('all'), Date.now());
  const legacy = x.atLeast(1, 41) ? '' : x.query.text('filter');
  const selected = selectImages(
    images,
    legacy === '' ? selection : { ...selection, reference: [...selection.reference, legacy] },
  );
  const shared = x.atLeast(1, 42) && x.query.flag('shared-size') ? sharedSizes(images, layers) : undefined;
  const manifestsOf =
    x.atLeast(1, 47) && x.query.flag('manifests') ? new ImageManifests(images.list(), users, contentBytes) : undefined;
  const counts = x.atLeast(1, 51) ? countUsers() : undefined;
  const write = (one: SelectedImage): string => {
    const { image } = one;
    const figures = {
      containers: counts && (counts.get(image.id) ?? 0),
      sharedSize: shared?.get(image.id),
      manifests: manifestsOf?.of(image),
      contentBytes: contentSum(image, contentBytes),
    };
    return JSON.stringify(summaryJson(one, figures, (major, minor) => x.atLeast(major, minor)));
  };
  await sendJsonParts(x, listPieces(selected, write), WHOLE_LIST_CHARS);
}

function inspectImage(x: Exchange, { images, layers, users, contentBytes }: ImageRouteDeps): void {
  const platform = x.query.text('platform');
  const withManifests = x.atLeast(1, 48) && x.query.flag('manifests');
  if (platform !== '' && withManifests) {
    throw invalid('conflicting options: manifests and platform options cannot both be set', {
      code: 'CONFLICTING_OPTIONS',
    });
  }
  const name = x.param('name');
  const found = images.resolve(name);
  const isOne = platform !== '' && x.atLeast(1, 49);
  const one = isOne ? requirePlatform(found, platformObject(platform), name) : found;
  const image = isOne ? alone(one) : one;
  // Compose 1 speaks the newest version that it is offered, but cannot recreate a container without members that went
  // with 1.45.
  const isCompose1 = x.header('user-agent')?.startsWith('docker-compose/1.') === true;
  const graphDriver = { Name: layers.driver, Data: image.topLayer ? layers.layerData(image.topLayer) : null };
  const manifests = withManifests ? new ImageManifests(images.list(), users, contentBytes).of(image) : undefined;
  const parts = { graphDriver, manifests, size: sizeOf(one, contentBytes(one)) };
  x.sendJson(
    200,
    inspectJson(image, parts, (major, minor) => x.atLeast(major, minor) && !isCompose1),
  );
}

/** Returns an image of an index as the one that its own manifest stands for. */
function alone(image: Image): Image {
  const { published } = image;
  const own = published?.manifests.find(({ digest }) => digest === published.own);
  return published && own && isOfIndex(image)
    ? { ...image, id: own.digest, published: { ...published, target: own } }
    : image;
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
  await pump(subscription, stream, {
    onEnd: () => {
      if (subscription.outcome === 'failed') x.noteFailure();
    },
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

/** Returns how many bytes of each image's layers other images have too. */
function sharedSizes(images: FileImageStore, layers: LayerStore): ReadonlyMap<string, number> {
  const owners = new Map<string, number>();
  const all = images.list();
  const chains = all.map(({ id }) => images.layersOf(id));
  for (const chain of chains) for (const chainId of chain) owners.set(chainId, (owners.get(chainId) ?? 0) + 1);
  return new Map(
    all.map(({ id }, index) => {
      const shared = (chains[index] ?? []).filter((chainId) => (owners.get(chainId) ?? 0) > 1);
      return [id, shared.reduce((sum, chainId) => sum + (layers.find(chainId)?.sizeBytes ?? 0), 0)];
    }),
  );
}
