/** Translates the places to which a client wants the cache of a build to go. */
import type { CachePush } from '../../actors/push/push-cache.js';
import type { LayerForm } from '../../build/outputs/layer-blobs.js';
import { type TravellingCache, travellingCache } from '../../build/outputs/travelling-cache.js';
import { internal, messageOf } from '../../errors/engine-error.js';
import { parseReference, withDefaultTag } from '../../images/reference.js';
import type { CacheExport } from '../../ports/build.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { CacheManifestForm } from '../../registry/cache-manifest.js';
import { type ClientCacheParts, layerFiles, sendCache, type ShowPart } from './client-cache.js';
import { compressionOf, flag, levelOf } from './export-attrs.js';
import { clientContent, loginOf, type OrderedBuild, stepDigest } from './ordered-build.js';

export interface CacheExportParts extends ClientCacheParts {
  readonly layers: Pick<LayerStore, 'find'>;
  readonly pushCache: (push: CachePush, signal: AbortSignal) => Promise<Digest>;
}

type Attributes = ReadonlyMap<string, string>;
type Send = (cache: TravellingCache, show: ShowPart) => Promise<void>;

/** Returns the exports besides those into the image itself. @throws EngineError for what cannot be done. */
export function cacheExports(build: OrderedBuild, parts: CacheExportParts): CacheExport[] {
  const wanted = (build.job.request.cache?.exports ?? []).filter(({ type }) => type !== 'inline');
  return wanted.map(({ type, attrs: given }) => {
    const attrs = new Map(Object.entries(given));
    const { place, send } = sender(type, build, attrs, parts);
    const isForgiving = flag(attrs, 'ignore-error') === true;
    return {
      mode: attrs.get('mode') === 'max' ? 'max' : 'min',
      take: (steps) =>
        shown(build, `exporting cache to ${place}`, isForgiving, async (show) => {
          const prepared = show('preparing build cache for export');
          const cache = travellingCache(steps, parts.layers);
          prepared();
          await send(cache, show);
        }),
    };
  });
}

function sender(
  type: string,
  build: OrderedBuild,
  attrs: Attributes,
  parts: CacheExportParts,
): { readonly place: string; readonly send: Send } {
  if (type === 'registry') return { place: 'registry', send: toRegistry(build, attrs, parts) };
  if (type === 'local') return { place: 'client directory', send: toClient(build, attrs, parts) };
  throw internal(`unknown cache exporter: ${JSON.stringify(type)}`);
}

function toRegistry(build: OrderedBuild, attrs: Attributes, { pushCache, openBlobs }: CacheExportParts): Send {
  const written = attrs.get('ref') ?? '';
  if (written === '') throw internal('registry cache exporter requires ref');
  const reference = withDefaultTag(parseReference(written));
  const form = formOf(attrs);
  const layerForm = layerFormOf(attrs);
  const isUsual = layerForm.compression === 'gzip' && layerForm.level === undefined;
  const isForced = flag(attrs, 'force-compression') === true;
  return async (cache, onPart) => {
    const credentials = await loginOf(build, reference.domain);
    const { signal } = build.job;
    const push: CachePush = { reference, credentials, ...cache, form, onPart };
    // Layers that the registry has in the usual form are not even compressed.
    if (isUsual && !isForced) {
      await pushCache(push, signal);
      return;
    }
    const blobs = await openBlobs(layerForm);
    try {
      const files = await layerFiles(cache, blobs, layerForm, signal);
      await pushCache({ ...push, files }, signal);
    } finally {
      await blobs.close();
    }
  };
}

function toClient(build: OrderedBuild, attrs: Attributes, parts: CacheExportParts): Send {
  const directory = attrs.get('dest') ?? '';
  if (directory === '') throw internal('local cache exporter requires dest');
  const form = formOf(attrs);
  const layerForm = layerFormOf(attrs);
  return async (cache, show) => {
    const content = clientContent(build, directory);
    const manifest = await sendCache({ cache, content, form, layerForm, show }, parts, build.job.signal);
    // The client writes it into the index of its directory.
    build.response.set('cache.manifest', JSON.stringify(manifest));
  };
}

/** The layers of a client's directory are made anew each time, so that they always have the form that is asked for. */
function layerFormOf(attrs: Attributes): LayerForm {
  flag(attrs, 'force-compression');
  return { compression: compressionOf(attrs), level: levelOf(attrs.get('compression-level')), epoch: undefined };
}

function formOf(attrs: Attributes): CacheManifestForm {
  const form = flag(attrs, 'image-manifest') === false ? 'index' : 'image';
  if (flag(attrs, 'oci-mediatypes') === false && form === 'image')
    throw internal('invalid configuration for remote cache: OCI mediatypes are required for ImageManifest format');
  return form;
}

async function shown(
  { job: { ref, progress } }: OrderedBuild,
  name: string,
  isForgiving: boolean,
  action: (show: ShowPart) => Promise<void>,
): Promise<void> {
  const digest = stepDigest(ref, name);
  const step = { digest, inputs: [], name, cached: false, started: Date.now() };
  progress.vertex(step);
  const show: ShowPart = (id) => {
    const status = { id, vertex: digest, name: '', current: 0, total: 0, started: Date.now() };
    progress.status(status);
    return () => progress.status({ ...status, completed: Date.now() });
  };
  try {
    await action(show);
    progress.vertex({ ...step, completed: Date.now() });
  } catch (error) {
    progress.vertex({ ...step, completed: Date.now(), error: messageOf(error) });
    if (!isForgiving) throw error;
  }
}
