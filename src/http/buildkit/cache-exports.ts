/** Translates the places to which a client wants the cache of a build to go. */
import { travellingCache } from '../../build/outputs/travelling-cache.js';
import type { CachePush } from '../../actors/push/push-cache.js';
import { internal, messageOf } from '../../errors/engine-error.js';
import { parseReference, withDefaultTag } from '../../images/reference.js';
import type { CachedStep, CacheExport } from '../../ports/build.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { flag } from './export-attrs.js';
import { loginOf, type OrderedBuild, stepDigest } from './ordered-build.js';

export interface CacheExportParts {
  readonly layers: Pick<LayerStore, 'find'>;
  readonly pushCache: (push: CachePush, signal: AbortSignal) => Promise<Digest>;
}

type Attributes = ReadonlyMap<string, string>;
/** Shows a part of the export until the returned function is called. */
type ShowPart = (name: string) => () => void;

/** Returns the exports besides those into the image itself. @throws EngineError for what cannot be done. */
export function cacheExports(build: OrderedBuild, parts: CacheExportParts): CacheExport[] {
  const wanted = (build.job.request.cache?.exports ?? []).filter(({ type }) => type !== 'inline');
  return wanted.map(({ type, attrs: given }) => {
    const attrs = new Map(Object.entries(given));
    if (type !== 'registry') throw internal(`unknown cache exporter: ${JSON.stringify(type)}`);
    const send = toRegistry(build, attrs, parts);
    const mode = attrs.get('mode') === 'max' ? 'max' : 'min';
    const isForgiving = flag(attrs, 'ignore-error') === true;
    return {
      mode,
      take: (steps) => shown(build, `exporting cache to ${type}`, isForgiving, (show) => send(steps, show)),
    };
  });
}

function toRegistry(
  build: OrderedBuild,
  attrs: Attributes,
  { layers, pushCache }: CacheExportParts,
): (steps: readonly CachedStep[], show: ShowPart) => Promise<void> {
  const written = attrs.get('ref') ?? '';
  if (written === '') throw internal('registry cache exporter requires ref');
  const reference = withDefaultTag(parseReference(written));
  const form = flag(attrs, 'image-manifest') === false ? 'index' : 'image';
  if (flag(attrs, 'oci-mediatypes') === false && form === 'image')
    throw internal('invalid configuration for remote cache: OCI mediatypes are required for ImageManifest format');
  const compression = attrs.get('compression') ?? 'gzip';
  if (compression !== 'gzip')
    throw internal(`layers of caches in registries are compressed with gzip, not ${compression}`);
  return async (steps, show) => {
    const prepared = show('preparing build cache for export');
    const { layers: wanted, document } = travellingCache(steps, layers);
    prepared();
    const credentials = await loginOf(build, reference.domain);
    const push = { reference, credentials, layers: wanted, document, form, onPart: show } as const;
    await pushCache(push, build.job.signal);
  };
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
