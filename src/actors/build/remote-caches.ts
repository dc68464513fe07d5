/** Caches of builds that images and registries keep: what is in them, and the layers that they give. */
import { dataLoss, isEngineError } from '../../errors/engine-error.js';
import {
  type CacheDocument,
  INLINE_CACHE,
  MAX_DOCUMENT_BYTES,
  readCacheDocument,
} from '../../build/cache/cache-document.js';
import { familiarName, familiarString, type ImageReference } from '../../images/reference.js';
import type { FileImageStore } from '../../images/store.js';
import { chainOf } from '../../ports/chain-id.js';
import type { BuildCredentials, ContentSource } from '../../ports/build.js';
import type { Digest } from '../../ports/storage.js';
import { type RegistryAccess, withGrant } from '../../registry/access.js';
import { cacheConfigOf } from '../../registry/cache-manifest.js';
import { getBlob, getManifest } from '../../registry/client.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import { type ResolvedLayer, resolveImage } from '../../registry/resolve.js';
import { pullScope } from '../../registry/token.js';
import { Slots } from '../kit/slots.js';
import type { SharedLayers } from '../pull/layers.js';
import type { RegistrySessions } from '../registry-session/sessions.js';
import { contentCache } from './content-cache.js';
import type { ContentDeps } from './content-layers.js';
import { byKey, documentSteps, type FindStep, type RemoteCache } from './remote-steps.js';

export interface RemoteCacheDeps extends ContentDeps {
  readonly images: FileImageStore;
  readonly sessions: Pick<RegistrySessions, 'accessTo'>;
  readonly transfers: Pick<SharedLayers, 'join' | 'watch'>;
  /** So many layers of one cache come at a time; 0: all. */
  readonly maxConcurrentDownloads: () => number;
}

interface Origin {
  readonly reference: ImageReference;
  readonly credentials: BuildCredentials | undefined;
  readonly hosts: readonly RegistryHost[];
}

export class RemoteCaches {
  constructor(private readonly deps: RemoteCacheDeps) {}

  /** Returns the cache that an image of this engine has in its configuration; undefined: there is none. */
  async ofImage(name: string): Promise<RemoteCache | undefined> {
    const { images } = this.deps;
    const id = images.idOf(name);
    const image = id && images.get(id);
    if (!image) return undefined;
    const bytes = await images.configBytes(image);
    const document = inlineOf(bytes);
    if (document === undefined) return undefined;
    const { rootfs } = JSON.parse(bytes.toString('utf8')) as { readonly rootfs: { readonly diff_ids: Digest[] } };
    const chain = chainOf(rootfs.diff_ids);
    const steps = byKey(document.records);
    return {
      find: (key) => {
        const step = steps.get(key);
        if (step === undefined || step.layer < 0 || step.layer >= chain.length) return undefined;
        const missing = (layer: Digest): Promise<void> => Promise.reject(dataLoss(`layer ${layer} is not here`));
        return { createdAt: step.createdAt, layers: chain.slice(0, step.layer + 1), bring: missing };
      },
    };
  }

  /**
   * Returns the cache that a reference of a registry stands for, of the first host that has it: a manifest of a cache,
   * or an image with one in its configuration. @throws EngineError
   */
  async ofRegistry(
    reference: ImageReference,
    credentials: BuildCredentials | undefined,
    signal: AbortSignal,
  ): Promise<RemoteCache> {
    const accesses = await this.deps.sessions.accessTo(reference.domain, credentials);
    let failure: unknown = dataLoss('no host to ask', { code: 'NO_HOST' });
    for (const [at, access] of accesses.entries()) {
      try {
        const findStep = await stepsOf(access, reference, signal);
        const hosts = accesses.slice(at).map(({ host }) => host);
        return this.#over(findStep, { reference, credentials, hosts });
      } catch (error) {
        failure = error;
        if (signal.aborted) break;
      }
    }
    throw failure;
  }

  /** Returns a cache of the client's. @param manifest its digest. @throws EngineError */
  ofContent(content: ContentSource, manifest: Digest, signal: AbortSignal): Promise<RemoteCache> {
    return contentCache(this.deps, content, manifest, signal);
  }

  #over(findStep: FindStep, { reference, credentials, hosts }: Origin): RemoteCache {
    const { transfers, maxConcurrentDownloads } = this.deps;
    const slots = new Slots(maxConcurrentDownloads());
    /** As in a pull, the next layer comes when the bytes of this one are here. */
    const transfer = async (layer: ResolvedLayer, signal: AbortSignal): Promise<void> => {
      const free = await slots.take(signal);
      const unwatch = transfers.watch(layer.chainId, ({ type }) => {
        if (type === 'fetched' || type === 'extracted') free();
      });
      try {
        await transfers.join({ layer, repository: reference.path, hosts, credentials }, signal);
      } finally {
        unwatch();
        free();
      }
    };
    return {
      find: (key) => {
        const step = findStep(key);
        if (step === undefined) return undefined;
        const byChain = new Map(step.layers.map((layer) => [layer.chainId, layer]));
        return {
          createdAt: step.createdAt,
          layers: [...byChain.keys()],
          bring: async (wanted, signal) => {
            const layer = byChain.get(wanted);
            if (layer === undefined) throw dataLoss(`the cache has no layer ${wanted}`, { code: 'BAD_CACHE' });
            await transfer(layer, signal);
          },
        };
      },
    };
  }
}

async function stepsOf(access: RegistryAccess, reference: ImageReference, signal: AbortSignal): Promise<FindStep> {
  const { path } = reference;
  const options = { limits: access.limits, signal };
  const wanted = reference.digest ?? reference.tag ?? 'latest';
  const scope = pullScope(path);
  const { bytes } = await withGrant(access, scope, signal, (grant) => getManifest(grant, path, wanted, options));
  const config = cacheConfigOf(bytes);
  if (config !== undefined) {
    if (config.sizeBytes > MAX_DOCUMENT_BYTES) throw dataLoss('the cache document is too large', { code: 'BAD_CACHE' });
    const text = await withGrant(access, scope, signal, (grant) => getBlob(grant, path, config, options));
    return documentSteps(readCacheDocument(text));
  }
  const names = { familiarName: familiarName(reference), familiarString: familiarString(reference) };
  const image = { repository: path, reference: wanted, platform: undefined, ...names };
  const { configBytes, layers } = await resolveImage(access, image, () => Promise.resolve(undefined), signal);
  const records = byKey(inlineOf(configBytes)?.records ?? []);
  return (key) => {
    const record = records.get(key);
    if (record === undefined || record.layer < 0 || record.layer >= layers.length) return undefined;
    return { createdAt: record.createdAt, layers: layers.slice(0, record.layer + 1) };
  };
}

/** Returns the cache in an image's configuration; undefined: there is none, or none that can be read. */
function inlineOf(config: Buffer): CacheDocument | undefined {
  try {
    const { [INLINE_CACHE]: text } = JSON.parse(config.toString('utf8')) as Readonly<Record<string, unknown>>;
    return typeof text === 'string' ? readCacheDocument(Buffer.from(text, 'base64')) : undefined;
  } catch (error) {
    if (error instanceof SyntaxError || isEngineError(error, 'data-loss')) return undefined;
    throw error;
  }
}
