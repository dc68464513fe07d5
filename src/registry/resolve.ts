/** Resolves a reference to what has to be fetched: manifest, platform choice, config and the layers' identities. */
import { dataLoss, EngineError, invalid, isEngineError, messageOf, notFound } from '../errors/engine-error.js';
import { chainId } from '../ports/chain-id.js';
import { CONFIG_LIMITS, excessOf } from '../ports/config-limits.js';
import type { ImageConfigDocument } from '../ports/images.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { type RegistryAccess, withGrant } from './access.js';
import { type FetchedManifest, getBlob, getManifest, headManifest } from './client.js';
import { factsOf } from './failure.js';
import { type Descriptor, type ImageManifest, parseManifest, publishedAs } from './manifest.js';
import { bestManifest, canRun, formatPlatform, hostPlatform, type Platform } from './platform.js';
import { pullScope } from './token.js';
import { parseForeignJson } from '../text/foreign-json.js';

export interface WantedImage {
  /** Repository path in the registry: `library/alpine`. */
  readonly repository: string;
  /** Tag or digest. */
  readonly reference: string;
  readonly platform: Platform | undefined;
  /** Familiar name and familiar reference for messages. */
  readonly familiarName: string;
  readonly familiarString: string;
}

export interface ResolvedLayer {
  readonly blob: Descriptor;
  readonly diffId: Digest;
  readonly chainId: Digest;
  /** Chain ID of the layer below, undefined for the lowest. */
  readonly parent: Digest | undefined;
}

export interface ResolvedImage {
  /** Digest of what the reference names: an index or a manifest. */
  readonly digest: Digest;
  readonly configDigest: Digest;
  readonly configBytes: Buffer;
  readonly layers: readonly ResolvedLayer[];
  readonly published: PublishedImage;
  /** The document that the reference names, and the manifest of the image if that is another one. */
  readonly documents: readonly Pick<FetchedManifest, 'digest' | 'bytes'>[];
  /** Lines for the client. */
  readonly warnings: readonly string[];
}

/** Returns the bytes of a config that is in the image store already, so that it is not fetched again. */
export type KnownConfig = (configDigest: Digest) => Promise<Buffer | undefined>;

/**
 * Resolves an image at one host. Throws with the texts that clients know: not-found for denied, unknown repository,
 * unknown manifest and no matching platform; the registry's own failures otherwise.
 */
export async function resolveImage(
  access: RegistryAccess,
  wanted: WantedImage,
  known: KnownConfig,
  signal: AbortSignal,
): Promise<ResolvedImage> {
  const scope = pullScope(wanted.repository);
  const options = { limits: access.limits, signal };
  const manifestAt = (reference: string): Promise<FetchedManifest> =>
    withGrant(access, scope, signal, (grant) => getManifest(grant, wanted.repository, reference, options));
  try {
    const top = await fetchTop(access, wanted, manifestAt, signal);
    const parsed = parseManifest(top.bytes, top.mediaType, wanted.familiarString);
    const { image, fetched } =
      parsed.kind === 'image'
        ? { image: parsed, fetched: top }
        : await fetchChild(parsed.manifests, wanted, manifestAt);
    const configDigest = image.config.digest;
    const fetchConfig = (): Promise<Buffer> =>
      withGrant(access, scope, signal, (grant) => getBlob(grant, wanted.repository, image.config, options));
    const configBytes = (await known(configDigest)) ?? (await fetchConfig());
    const config = parseConfig(configBytes);
    const warnings = parsed.kind === 'image' ? platformWarnings(config, wanted) : [];
    return {
      digest: top.digest,
      configDigest,
      configBytes,
      layers: layersOf(image, config),
      published: publishedAs({ digest: top.digest, sizeBytes: top.bytes.length }, parsed, fetched.digest),
      documents: fetched === top ? [top] : [top, fetched],
      warnings,
    };
  } catch (error) {
    throw explainFailure(error, wanted);
  }
}

async function fetchTop(
  access: RegistryAccess,
  { repository, reference }: WantedImage,
  manifestAt: (reference: string) => Promise<FetchedManifest>,
  signal: AbortSignal,
): Promise<FetchedManifest> {
  if (reference.startsWith('sha256:')) return manifestAt(reference);
  // A HEAD does not count with registries that limit pulls, and it fixes the digest if a tag moves meanwhile.
  const options = { limits: access.limits, signal };
  const head = withGrant(access, pullScope(repository), signal, (grant) =>
    headManifest(grant, repository, reference, options),
  );
  const digest = await head.catch((error: unknown) => {
    // The answer to a HEAD has no text; the answer to a GET tells the reason.
    if (isEngineError(error, 'unauthorized') && factsOf(error).status === 401) return undefined;
    throw error;
  });
  return manifestAt(digest ?? reference);
}

async function fetchChild(
  manifests: readonly Descriptor[],
  wanted: WantedImage,
  manifestAt: (reference: string) => Promise<FetchedManifest>,
): Promise<{ readonly image: ImageManifest; readonly fetched: FetchedManifest }> {
  const platform = wanted.platform ?? hostPlatform();
  const entry = bestManifest(manifests, platform);
  if (!entry) {
    throw notFound(`no matching manifest for ${formatPlatform(platform)} in the manifest list entries`, {
      code: 'NO_MATCHING_PLATFORM',
    });
  }
  const child = await manifestAt(entry.digest);
  const parsed = parseManifest(child.bytes, child.mediaType, wanted.familiarString);
  if (parsed.kind === 'image') return { image: parsed, fetched: child };
  throw invalid('unsupported manifest: an index inside an index', { code: 'UNSUPPORTED_MANIFEST' });
}

/** @throws EngineError data-loss for what is no configuration, invalid for an image of another system. */
export function parseConfig(bytes: Buffer): ImageConfigDocument {
  let config: Partial<ImageConfigDocument> | null;
  try {
    config = parseForeignJson(bytes, CONFIG_LIMITS) as typeof config;
  } catch (error) {
    throw dataLoss(`invalid image configuration: ${messageOf(error)}`, { code: 'BAD_CONFIG', cause: error });
  }
  const excess = excessOf(config ?? {});
  if (excess !== undefined) throw dataLoss(`invalid image configuration: ${excess}`, { code: 'BAD_CONFIG' });
  const diffIds: unknown = config?.rootfs?.diff_ids;
  if (
    !config ||
    !Array.isArray(diffIds) ||
    !diffIds.every((id) => typeof id === 'string' && /^sha256:[a-f0-9]{64}$/.test(id))
  ) {
    throw dataLoss('invalid image configuration: no root file system', { code: 'BAD_CONFIG' });
  }
  if (config.os !== undefined && config.os !== '' && config.os !== 'linux') {
    throw invalid(`image operating system "${config.os}" cannot be used on this platform`, { code: 'FOREIGN_OS' });
  }
  return config as ImageConfigDocument;
}

/** @throws EngineError data-loss when manifest and configuration tell of other layers. */
export function layersOf(manifest: ImageManifest, config: ImageConfigDocument): ResolvedLayer[] {
  const diffIds = config.rootfs.diff_ids;
  if (diffIds.length !== manifest.layers.length) {
    throw dataLoss("layers from manifest don't match image configuration", { code: 'LAYER_MISMATCH' });
  }
  let parent: Digest | undefined;
  return diffIds.map((diffId, index) => {
    const blob = manifest.layers[index];
    if (!blob) throw dataLoss("layers from manifest don't match image configuration", { code: 'LAYER_MISMATCH' });
    const layer: ResolvedLayer = { blob, diffId, chainId: chainId(parent, diffId), parent };
    parent = layer.chainId;
    return layer;
  });
}

/** Returns a warning if a single image has another platform than the wanted one; it is pulled all the same. */
function platformWarnings(
  { os, architecture, variant }: ImageConfigDocument,
  { platform, familiarString }: WantedImage,
): string[] {
  const own = { os, architecture, variant: variant ?? '' };
  if (!platform || canRun(platform, own)) return [];
  return [
    `WARNING: image with reference ${familiarString} was found but its platform (${formatPlatform(own)}) ` +
      `does not match the specified platform (${formatPlatform(platform)})`,
  ];
}

/** Says which image could not be had, in words that clients look for. */
export function explainFailure(
  error: unknown,
  { familiarName, familiarString }: Pick<WantedImage, 'familiarName' | 'familiarString'>,
): unknown {
  if (!isEngineError(error)) return error;
  const { registryCode, status } = factsOf(error);
  const explained = (message: string, code: string): EngineError =>
    new EngineError('not-found', `${message}: ${error.message}`, {
      code,
      cause: error,
      details: { ...error.details, retryable: false },
    });
  if (registryCode === 'DENIED' || (status === 403 && registryCode === undefined)) {
    return explained(
      `pull access denied for ${familiarName}, repository does not exist or may require 'docker login'`,
      'PULL_DENIED',
    );
  }
  if (registryCode === 'NAME_UNKNOWN') return explained(`repository ${familiarName} not found`, 'REPOSITORY_UNKNOWN');
  if (registryCode === 'MANIFEST_UNKNOWN')
    return explained(`manifest for ${familiarString} not found`, 'MANIFEST_UNKNOWN');
  if (status === 404 && registryCode === undefined)
    return explained(`manifest for ${familiarString} not found: manifest unknown`, 'MANIFEST_UNKNOWN');
  return error;
}
