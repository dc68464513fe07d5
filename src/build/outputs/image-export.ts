/** Makes of the results of a build an image with its manifests, which leaves this engine as an archive. */
import { invalid } from '../../errors/engine-error.js';
import type { PlatformResult } from '../../ports/build.js';
import { chainOf } from '../../ports/chain-id.js';
import type { ImageSet, LeavingLayer } from '../../ports/image-set.js';
import type { Digest } from '../../ports/storage.js';
import { ImageTar } from '../../images/archive/image-tar.js';
import { familiarString, parseReference } from '../../images/reference.js';
import { described, type Descriptor, type ImageFormat, MEDIA_TYPES } from './image-documents.js';
import { blobDocuments, exportedParts, imageSet, manifestDocuments, type SetOptions } from './image-set.js';
import { LayerBlobs, type LayerBlobsDeps, type LayerForm } from './layer-blobs.js';

export interface ExportOptions extends LayerForm, SetOptions {
  /** Such as `docker.io/library/app:1`. */
  readonly names: readonly string[];
  /** Adds `manifest.json`, by which `docker load` of any age finds the image. */
  readonly isLoadable: boolean;
}

/** Hears how an export goes on; a name is of a part such as `exporting layers`. */
export type ExportSteps = <T>(name: string, action: () => Promise<T>) => Promise<T>;

export interface ExportedBlob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Opens the bytes. */
  readonly bytes: () => AsyncIterable<Uint8Array>;
}

const REWRITTEN = 'buildkit/rewritten-timestamp';

/** An image that is ready to be written. */
export class ImageExport {
  private constructor(
    private readonly options: ExportOptions,
    private readonly blobs: LayerBlobs,
    private readonly set: ImageSet,
  ) {}

  /**
   * Makes the blobs and the documents. The caller holds the layers until the export is closed.
   * @throws EngineError invalid for what the format does not have.
   */
  static async prepare(
    deps: LayerBlobsDeps,
    results: readonly PlatformResult[],
    options: ExportOptions,
    steps: ExportSteps,
    signal: AbortSignal,
  ): Promise<ImageExport> {
    if (options.isLoadable && (results.length > 1 || options.attest !== undefined))
      throw invalid('docker exporter does not currently support exporting manifest lists');
    const blobs = await LayerBlobs.open(deps, options);
    try {
      const parts = await steps('exporting layers', () =>
        Promise.all(
          results.map(async (result) => ({ result, layers: await layersOf(result, blobs, options, signal) })),
        ),
      );
      const set = await imageSet(parts, options);
      for (const name of exportedParts(set)) await steps(name, () => Promise.resolve());
      return new ImageExport(options, blobs, set);
    } catch (error) {
      await blobs.close();
      throw error;
    }
  }

  /** Describes the index, or the only manifest. */
  get descriptor(): Descriptor {
    return this.set.descriptor;
  }

  /** undefined where there is an index. */
  get configDigest(): Digest | undefined {
    return this.set.index === undefined ? this.set.platforms[0]?.config.descriptor.digest : undefined;
  }

  /** Writes an archive in the layout of the OCI image specification. It must be read to its end or returned. */
  async *tar(): AsyncGenerator<Uint8Array> {
    const archive = new ImageTar();
    const filled = this.#fill(archive).catch((error: unknown) => archive.destroy(error as Error));
    try {
      yield* archive.chunks;
    } finally {
      archive.destroy();
      await filled;
    }
  }

  close(): Promise<void> {
    return this.blobs.close();
  }

  /** Returns all blobs, each once and after those that it names. */
  content(): ExportedBlob[] {
    return [...this.#all()].map(([digest, { sizeBytes, bytes }]) => ({
      digest,
      sizeBytes,
      bytes: bytes === undefined ? () => this.blobs.read(digest) : () => onePiece(bytes),
    }));
  }

  #all(): Map<Digest, { readonly sizeBytes: number; readonly bytes?: Buffer }> {
    const all = new Map<Digest, { readonly sizeBytes: number; readonly bytes?: Buffer }>();
    for (const { layers } of this.set.platforms)
      for (const { digest, size } of layers) all.set(digest, { sizeBytes: size });
    for (const { descriptor, bytes } of [...blobDocuments(this.set), ...manifestDocuments(this.set)])
      all.set(descriptor.digest, { sizeBytes: bytes.length, bytes });
    return all;
  }

  async #fill(archive: ImageTar): Promise<void> {
    await archive.directory('blobs/');
    await archive.directory('blobs/sha256/');
    for (const [digest, { sizeBytes, bytes }] of [...this.#all()].sort(([a], [b]) => (a < b ? -1 : 1)))
      await archive.file(pathOf(digest), { sizeBytes, mtimeSeconds: 0, mode: 0o444 }, bytes ?? this.blobs.read(digest));
    const add = async (name: string, content: unknown, mode?: number): Promise<void> => {
      const bytes = Buffer.from(JSON.stringify(content));
      await archive.file(
        name,
        { sizeBytes: bytes.length, mtimeSeconds: 0, ...(mode !== undefined && { mode }) },
        bytes,
      );
    };
    await add('index.json', { schemaVersion: 2, mediaType: MEDIA_TYPES.oci.index, manifests: this.#named() });
    if (this.options.isLoadable) await add('manifest.json', this.#loadable());
    await add('oci-layout', { imageLayoutVersion: '1.0.0' }, 0o444);
    archive.end();
  }

  /** One entry for each name, or one without. */
  #named(): Descriptor[] {
    const { annotations = {}, platform } = this.descriptor;
    const { names } = this.options;
    if (names.length === 0) return [this.descriptor];
    return names.map((name) => {
      const tag = parseReference(name).tag ?? '';
      const own = { 'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': tag };
      return described(this.descriptor, { ...annotations, ...own }, platform);
    });
  }

  #loadable(): object[] {
    return this.set.platforms.map(({ config, layers }) => ({
      Config: pathOf(config.descriptor.digest),
      RepoTags: this.options.names.map((name) => familiarString(parseReference(name))),
      Layers: layers.map(({ digest }) => pathOf(digest)),
    }));
  }
}

/** Makes the layers of a result in the form that is wanted. */
export async function layersOf(
  { config, baseLayers }: PlatformResult,
  blobs: LayerBlobs,
  { format, compression, epoch }: LayerForm & { readonly format: ImageFormat },
  signal: AbortSignal,
): Promise<LeavingLayer[]> {
  const chain = chainOf(config.rootfs.diff_ids);
  const files = await Promise.all(chain.map((chainId, at) => blobs.blob(chainId, signal, at < baseLayers)));
  const rewritten = epoch === undefined ? {} : { [REWRITTEN]: String(epoch) };
  const mediaType = MEDIA_TYPES[format].layer[compression];
  return files.map(({ digest, sizeBytes, diffId }, at) => ({
    diffId,
    descriptor: described({ mediaType, digest, size: sizeBytes }, at < baseLayers ? {} : rewritten),
  }));
}

async function* onePiece(bytes: Buffer): AsyncGenerator<Buffer> {
  yield await Promise.resolve(bytes);
}

function pathOf(digest: Digest): string {
  return `blobs/${digest.replace(':', '/')}`;
}
