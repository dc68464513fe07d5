/** The documents of images in an archive: manifests, indexes and configurations, each read only once. */
import { isEngineError, messageOf } from '../../errors/engine-error.js';
import { CONFIG_LIMITS, excessOf } from '../../ports/config-limits.js';
import type { ImageConfigDocument } from '../../ports/images.js';
import type { PublishedImage } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';
import { type ImageManifest, parseManifest, publishedAs } from '../../registry/manifest.js';
import { parseForeignJson } from '../../text/foreign-json.js';
import { type JsonLimits, JsonScan } from '../../text/json-scan.js';
import { isDigest } from '../reference.js';
import { type ArchiveFiles, badArchive as bad } from './files.js';

export interface ArchivedDocument {
  readonly digest: Digest;
  readonly bytes: Uint8Array;
}

/** An image in an archive as registries have it. */
export interface ArchivedParts {
  /** The document that the archive names, and the manifest of the image where that is another one. */
  readonly documents: readonly ArchivedDocument[];
  /** The layers that this manifest names, the lowest one first. */
  readonly blobs: readonly Digest[];
}

/** An image as the manifest describes it, with the parsed configuration. */
export interface Draft {
  readonly configPath: string;
  readonly config: ImageConfigDocument;
  /** Paths in the archive. */
  readonly layers: readonly string[];
  readonly names: readonly string[];
  readonly parent: Digest | undefined;
  readonly published: PublishedImage | undefined;
  readonly parts: ArchivedParts | undefined;
}

/** A list of images has far less in it than other lists may: more would be refused after it was parsed. */
const LIST_LIMITS: JsonLimits = { bytes: 8 << 20, depth: 64, values: 300_000, members: 100_000 };

/** Parses a list of images, which may be long. @throws EngineError invalid for what is none, and for a longer one. */
export function json(bytes: Buffer, what: string): unknown {
  try {
    new JsonScan(LIST_LIMITS).take(bytes);
    return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    if (isEngineError(error)) throw bad(`invalid ${what} in the archive: ${error.message}`, error);
    throw bad(`invalid ${what} in the archive: not JSON`, error);
  }
}

function configurationOf(bytes: Buffer): ImageConfigDocument | null {
  try {
    return parseForeignJson(bytes, CONFIG_LIMITS) as ImageConfigDocument | null;
  } catch (error) {
    throw bad(`invalid image configuration in the archive: ${messageOf(error)}`, error);
  }
}

/** Reads the configurations of images, each only once, even if several images have it. */
export class Configurations {
  readonly #parsed = new Map<string, ImageConfigDocument>();

  constructor(private readonly files: ArchiveFiles) {}

  /**
   * Describes an image. @throws EngineError invalid when its configuration has other layers, or is for another system.
   */
  draft(configPath: string, layers: readonly string[]): Draft {
    const config = this.#parsed.get(configPath) ?? this.#parse(configPath);
    const count = config.rootfs?.diff_ids?.length ?? 0;
    if (layers.length !== count)
      throw bad(`invalid manifest, layers length mismatch: expected ${count}, got ${layers.length}`);
    return { configPath, config, layers, names: [], parent: undefined, published: undefined, parts: undefined };
  }

  #parse(path: string): ImageConfigDocument {
    const bytes = this.files.document(path);
    if (!bytes) throw bad(`the archive has no configuration ${JSON.stringify(path)}`);
    const config = configurationOf(bytes);
    const diffIds = config?.rootfs?.diff_ids;
    if (!config || !Array.isArray(diffIds ?? []) || !(diffIds ?? []).every(isDigest))
      throw bad('invalid image configuration in the archive: no root file system');
    const excess = excessOf(config);
    if (excess !== undefined) throw bad(`invalid image configuration in the archive: ${excess}`);
    if ((config.os ?? 'linux') !== 'linux') throw bad(`cannot load ${config.os} image on linux`);
    this.#parsed.set(path, config);
    return config;
  }
}

export function parsed(bytes: Buffer, name: string): ReturnType<typeof parseManifest> {
  try {
    return parseManifest(bytes, undefined, name);
  } catch (error) {
    throw isEngineError(error) ? bad(`${name} in the archive: ${error.message}`, error) : error;
  }
}

export type Manifest = ReturnType<typeof parseManifest> & { readonly bytes: Buffer };

/** Reads manifests and indexes, each only once, even if several indexes name it. */
export class Manifests {
  readonly #parsed = new Map<Digest, Manifest>();

  constructor(private readonly files: ArchiveFiles) {}

  /** Reads a manifest or index. @throws EngineError invalid for a blob that the archive lacks, or that is neither. */
  at(digest: Digest): Manifest {
    const bytes = this.files.document(blobPath(digest));
    if (!bytes) throw bad(`the archive has no blob ${digest}`);
    const manifest = this.#parsed.get(digest) ?? {
      ...parsed(bytes, `manifest ${digest}`),
      bytes,
    };
    this.#parsed.set(digest, manifest);
    return manifest;
  }

  /**
   * Reads as `at` does, but returns undefined for a blob that cannot be read so. @throws EngineError invalid when the
   * archive costs too much.
   */
  find(digest: Digest): Manifest | undefined {
    try {
      return this.at(digest);
    } catch (error) {
      if (isEngineError(error) && error.code !== 'ARCHIVE_TOO_LARGE') return undefined;
      throw error;
    }
  }
}

export type OwnManifest = ImageManifest & { readonly bytes: Buffer; readonly digest: Digest };
export type Came = Pick<Draft, 'published' | 'parts'>;

export const NO_PARTS = { parts: undefined };

/** @param index has the manifest, or is it. */
export function cameAs(target: ArchivedDocument, index: Manifest, own: OwnManifest): Came {
  const document = { digest: own.digest, bytes: own.bytes };
  const named = { digest: target.digest, sizeBytes: target.bytes.length };
  return {
    published: publishedAs(named, index, own.digest),
    parts: {
      documents: own.digest === target.digest ? [target] : [target, document],
      blobs: own.layers.map(({ digest }) => digest),
    },
  };
}

export function blobPath(digest: Digest): string {
  return `blobs/sha256/${digest.slice(7)}`;
}
