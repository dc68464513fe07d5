/** The documents of an image that leaves this engine: a manifest for each platform, what is attested, an index. */
import { invalid } from '../../errors/engine-error.js';
import type { AttestedResult, PlatformResult } from '../../ports/build.js';
import type { ImageDocument, ImageSet, LeavingLayer, PlatformDocuments } from '../../ports/image-set.js';
import { parsePlatform } from '../../registry/platform.js';
import { goJson } from '../../text/go-json.js';
import type { ImageAnnotations } from './annotations.js';
import { type Attestation, attestationDocuments } from './attestation.js';
import {
  described,
  digestOf,
  type ImageFormat,
  indexDocument,
  manifestDocument,
  MEDIA_TYPES,
  platformOf,
} from './image-documents.js';

export interface PlatformParts {
  readonly result: PlatformResult;
  /** The lowest one first. */
  readonly layers: readonly LeavingLayer[];
}

export interface SetOptions {
  readonly format: ImageFormat;
  readonly annotations: ImageAnnotations;
  /** RFC 3339, in seconds. */
  readonly created: string;
  /** Says of the image of a platform how it was made. With it there is an index also for one platform. */
  readonly attest?: (result: AttestedResult) => readonly Attestation[];
}

/** @throws EngineError invalid for what the format does not have. */
export async function imageSet(parts: readonly PlatformParts[], options: SetOptions): Promise<ImageSet> {
  const { annotations, created, format, attest } = options;
  const platforms: PlatformDocuments[] = [];
  for (const part of parts) platforms.push(await platformDocuments(part, options, parts.length > 1));
  const [only] = platforms;
  if (only === undefined) throw invalid('the build has no result');
  const own = { 'org.opencontainers.image.created': created };
  if (parts.length === 1 && attest === undefined) {
    if (Object.keys(annotations.at('index')).length > 0)
      throw invalid('index annotations not supported for single platform export');
    const { descriptor } = only.manifest;
    return { platforms, descriptor: described(descriptor, { ...descriptor.annotations, ...own }, descriptor.platform) };
  }
  const manifests = [
    ...platforms.map(({ manifest }) => manifest.descriptor),
    ...platforms.flatMap(({ attestation }) => attestation?.manifest.descriptor ?? []),
  ];
  const index = indexDocument(format, manifests, annotations.at('index'));
  const descriptor = described(index.descriptor, { ...annotations.at('index-descriptor'), ...own });
  return { platforms, index: { ...index, manifests }, descriptor };
}

/** @param isOfSeveral the image is for the platform that was asked for, also where its base is for another one. */
async function platformDocuments(
  { result, layers }: PlatformParts,
  options: SetOptions,
  isOfSeveral: boolean,
): Promise<PlatformDocuments> {
  const { format, annotations, attest } = options;
  const { config: document } = result;
  const rootfs = { ...document.rootfs, diff_ids: layers.map(({ diffId }) => diffId) };
  const bytes = Buffer.from(goJson({ ...document, rootfs }, 0));
  const config = {
    bytes,
    descriptor: { mediaType: MEDIA_TYPES[format].config, digest: digestOf(bytes), size: bytes.length },
  };
  const platform = platformOf(isOfSeveral ? parsePlatform(result.platform) : document);
  const name = [platform.os, platform.architecture, platform.variant].filter(Boolean).join('/');
  const descriptors = layers.map(({ descriptor }) => descriptor);
  const { descriptor, ...rest } = manifestDocument(
    format,
    config.descriptor,
    descriptors,
    annotations.at('manifest', name),
  );
  const shown = described(descriptor, annotations.at('manifest-descriptor', name), platform);
  const attestations = attest?.(result) ?? [];
  const attestation =
    attestations.length === 0 ? undefined : await attestationDocuments(attestations, descriptor.digest);
  return {
    layers: descriptors,
    config,
    manifest: { ...rest, descriptor: shown },
    ...(attestation && { attestation }),
  };
}

/** Returns the documents that are stored as blobs: configurations, and statements. */
export function blobDocuments({ platforms }: ImageSet): ImageDocument[] {
  return platforms.flatMap(({ config, attestation }) => [config, ...(attestation?.blobs ?? [])]);
}

/** Returns the manifests, each after those that it names. The last one is the whole image. */
export function manifestDocuments({ platforms, index }: ImageSet): ImageDocument[] {
  const manifests = platforms.flatMap(({ manifest, attestation }) => [
    manifest,
    ...(attestation ? [attestation.manifest] : []),
  ]);
  return index === undefined ? manifests : [...manifests, index];
}

/** Returns the parts of an export in the words in which clients show them. */
export function exportedParts({ platforms, index }: ImageSet): string[] {
  const parts = platforms.flatMap(({ manifest, config, attestation }) => [
    `exporting manifest ${manifest.descriptor.digest}`,
    `exporting config ${config.descriptor.digest}`,
    ...(attestation ? [`exporting attestation manifest ${attestation.manifest.descriptor.digest}`] : []),
  ]);
  return index === undefined ? parts : [...parts, `exporting manifest list ${index.descriptor.digest}`];
}
