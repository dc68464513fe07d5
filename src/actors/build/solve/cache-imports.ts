/** The caches that a request names: what other builds have done already need not be done here. */
import { createHash } from 'node:crypto';
import { internal, isEngineError, notFound } from '../../../errors/engine-error.js';
import { canonicalString, isDigest, parseReference, withDefaultTag } from '../../../images/reference.js';
import type { HeldRecord } from '../../../ports/build-cache.js';
import type { CacheSource, ContentSource } from '../../../ports/build.js';
import type { Digest } from '../../../ports/storage.js';
import { factsOf } from '../../../registry/failure.js';
import type { RemoteCache, RemoteStep } from '../remote-steps.js';
import type { StepKeys } from './cache-keys.js';
import { prefixed } from './failure.js';
import type { StepWork } from './step.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

export class CacheImports {
  private constructor(private readonly caches: readonly RemoteCache[]) {}

  /** A cache that cannot be read, or is of an unknown kind, is no reason to fail: its step shows why. */
  static async load(tools: SolveTools, vertices: Vertices, signal: AbortSignal): Promise<CacheImports> {
    const { cacheFrom } = tools.request;
    const loaded = await Promise.all(cacheFrom.map((source) => loadSource(source, tools, vertices, signal)));
    signal.throwIfAborted();
    return new CacheImports(loaded.filter((cache) => cache !== undefined));
  }

  /**
   * Returns a record of what another build has made of a step, when its layers have been brought in; undefined: none
   * has, or its layers cannot be had. The step then runs.
   */
  async find(work: StepWork, keys: StepKeys): Promise<HeldRecord | undefined> {
    for (const cache of this.caches) {
      const step = cache.find(keys.portable);
      if (step === undefined) continue;
      try {
        return await bringIn(work, keys.own, step);
      } catch (error) {
        if (work.signal.aborted) throw error;
        work.tools.deps.log.warn({ err: error, step: work.step.name }, 'the layers of an imported cache are not used');
      }
    }
    return undefined;
  }
}

/** A way to a cache, and what clients call it. */
interface Loading {
  readonly name: string;
  readonly load: () => Promise<RemoteCache>;
}

async function loadSource(
  source: CacheSource,
  tools: SolveTools,
  vertices: Vertices,
  signal: AbortSignal,
): Promise<RemoteCache | undefined> {
  const { name, load } = loading(source, tools, signal);
  try {
    return await vertices.during(`importing cache manifest from ${name}`, load);
  } catch (error) {
    if (isEngineError(error)) return undefined;
    throw error;
  }
}

/** Nothing is checked before the cache is loaded, so that all that is wrong with it is shown by its step. */
function loading(source: CacheSource, tools: SolveTools, signal: AbortSignal): Loading {
  const { type, attributes, content } = source;
  if (content !== undefined) return fromClient(source, content, tools, signal);
  const written = attributes.get('ref') ?? '';
  const hash = createHash('sha256').update(JSON.stringify([...attributes]));
  const name = type === 'registry' && written !== '' ? written : `${type}:${hash.digest().readBigUInt64BE()}`;
  return {
    name,
    load: async () => {
      if (type !== 'registry') throw internal(`unknown cache importer: ${type}`);
      return await fromRegistry(written, tools, signal).catch((error: unknown) => {
        throw prefixed(error, 'failed to configure registry cache importer: ');
      });
    },
  };
}

function fromClient(
  { attributes }: CacheSource,
  content: ContentSource,
  { deps }: SolveTools,
  signal: AbortSignal,
): Loading {
  const digest = attributes.get('digest') ?? '';
  const load = async (): Promise<RemoteCache> => {
    if (!isDigest(digest)) throw internal('local cache importer requires either explicit digest or "latest" tag');
    return await deps.remoteCaches.ofContent(content, digest, signal);
  };
  return { name: `local:${digest}`, load };
}

async function fromRegistry(written: string, { deps, request }: SolveTools, signal: AbortSignal): Promise<RemoteCache> {
  if (written === '') throw internal('registry cache importer requires ref');
  const reference = withDefaultTag(parseReference(written));
  const full = canonicalString(reference);
  const own = await deps.remoteCaches.ofImage(full);
  if (own !== undefined) return own;
  const credentials = await request.credentials(reference.domain);
  return await deps.remoteCaches.ofRegistry(reference, credentials, signal).catch((error: unknown) => {
    const isMissing = isEngineError(error) && factsOf(error).status === 404;
    throw isMissing ? notFound(`${full}: not found`, { cause: error }) : error;
  });
}

/** Layers that are new come from below, all at the same time. */
async function bringIn({ tools, step, parent, signal }: StepWork, key: string, found: RemoteStep): Promise<HeldRecord> {
  const { layers, cache } = tools.deps;
  const top = found.layers.at(-1);
  const bring = async (layer: Digest): Promise<void> => {
    if (layers.find(layer) !== undefined) return tools.layers.hold(layer);
    await found.bring(layer, signal);
    tools.layers.hold(layer);
    await layers.release(layer);
  };
  const failed = (await Promise.allSettled(found.layers.map(bring))).find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') throw failed.reason;
  const isEmpty = top === parent?.layer;
  return cache.add({
    key,
    parents: parent?.records ?? [],
    type: 'regular',
    description: step.operation.description ?? step.name,
    layer: top,
    isEmpty,
    sizeBytes: isEmpty || top === undefined ? 0 : (layers.find(top)?.sizeBytes ?? 0),
    // The image tells it, and is to be the same as that of the other build.
    createdAt: Math.max(0, Math.min(found.createdAt, Date.now())),
  });
}
