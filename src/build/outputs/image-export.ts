/** Makes of the results of a build an image with its manifests, which leaves this engine as an archive. */
import { invalid } from '../../errors/engine-error.js';
import type { PlatformResult } from '../../ports/build.js';
import { chainOf } from '../../ports/chain-id.js';
import type { Digest } from '../../ports/storage.js';
import { ImageTar } from '../../images/archive/image-tar.js';
import { familiarString, parseReference } from '../../images/reference.js';
import { goJson } from '../../text/go-json.js';
import type { ImageAnnotations } from './annotations.js';
import {
  described,
  type Descriptor,
  digestOf,
  type Document,
  type ImageFormat,
  indexDocument,
  manifestDocument,
  MEDIA_TYPES,
  platformOf,
} from './image-documents.js';
import { LayerBlobs, type LayerBlobsDeps, type LayerForm } from './layer-blobs.js';

export interface ExportOptions extends LayerForm {
  /** Such as `docker.io/library/app:1`. */
  readonly names: readonly string[];
  readonly format: ImageFormat;
  /** Adds `manifest.json`, by which `docker load` of any age finds the image. */
  readonly isLoadable: boolean;
  readonly annotations: ImageAnnotations;
  /** RFC 3339, in seconds. */
  readonly created: string;
}

/** Hears how an export goes on; a name is of a part such as `exporting layers`. */
export type ExportSteps = <T>(name: string, action: () => Promise<T>) => Promise<T>;

interface ExportedPlatform {
  readonly manifest: Document;
  readonly config: Document;
  readonly layers: readonly Descriptor[];
}

const REWRITTEN = 'buildkit/rewritten-timestamp';

/** An image that is ready to be written. */
export class ImageExport {
  private constructor(
    private readonly options: ExportOptions,
    private readonly blobs: LayerBlobs,
    private readonly platforms: readonly ExportedPlatform[],
    private readonly index: Document | undefined,
    /** Describes the index, or the only manifest. */
    readonly descriptor: Descriptor,
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
    const isIndex = results.length > 1;
    if (isIndex && options.isLoadable)
      throw invalid('docker exporter does not currently support exporting manifest lists');
    const { annotations, created, format } = options;
    if (!isIndex && Object.keys(annotations.at('index')).length > 0)
      throw invalid('index annotations not supported for single platform export');
    const blobs = await LayerBlobs.open(deps, options);
    try {
      const platforms: ExportedPlatform[] = [];
      const files = await steps('exporting layers', () =>
        Promise.all(results.map((result) => layersOf(result, blobs, signal))),
      );
      for (const [at, result] of results.entries()) {
        const platform = exportedPlatform(result, files[at] ?? [], options);
        await steps(`exporting manifest ${platform.manifest.descriptor.digest}`, () => Promise.resolve());
        await steps(`exporting config ${platform.config.descriptor.digest}`, () => Promise.resolve());
        platforms.push(platform);
      }
      const [only] = platforms;
      if (only === undefined) throw invalid('the build has no result');
      const own = { 'org.opencontainers.image.created': created };
      if (!isIndex) {
        return new ImageExport(options, blobs, platforms, undefined, {
          ...described(
            only.manifest.descriptor,
            { ...only.manifest.descriptor.annotations, ...own },
            only.manifest.descriptor.platform,
          ),
        });
      }
      const manifests = platforms.map(({ manifest }) => manifest.descriptor);
      const index = indexDocument(format, manifests, annotations.at('index'));
      await steps(`exporting manifest list ${index.descriptor.digest}`, () => Promise.resolve());
      const descriptor = described(index.descriptor, { ...annotations.at('index-descriptor'), ...own });
      return new ImageExport(options, blobs, platforms, index, descriptor);
    } catch (error) {
      await blobs.close();
      throw error;
    }
  }

  /** undefined where there is an index. */
  get configDigest(): Digest | undefined {
    return this.index === undefined ? this.platforms[0]?.config.descriptor.digest : undefined;
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

  async #fill(archive: ImageTar): Promise<void> {
    await archive.directory('blobs/');
    await archive.directory('blobs/sha256/');
    const documents = this.platforms.flatMap(({ manifest, config }) => [manifest, config]);
    if (this.index !== undefined) documents.push(this.index);
    const all = new Map<Digest, { readonly sizeBytes: number; readonly bytes?: Buffer }>();
    for (const { layers } of this.platforms)
      for (const { digest, size } of layers) all.set(digest, { sizeBytes: size });
    for (const { descriptor, bytes } of documents) all.set(descriptor.digest, { sizeBytes: bytes.length, bytes });
    for (const [digest, { sizeBytes, bytes }] of [...all].sort(([a], [b]) => (a < b ? -1 : 1)))
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
    return this.platforms.map(({ config, layers }) => ({
      Config: pathOf(config.descriptor.digest),
      RepoTags: this.options.names.map((name) => familiarString(parseReference(name))),
      Layers: layers.map(({ digest }) => pathOf(digest)),
    }));
  }
}

type LayerFiles = Awaited<ReturnType<LayerBlobs['blob']>>[];

function layersOf({ config, baseLayers }: PlatformResult, blobs: LayerBlobs, signal: AbortSignal): Promise<LayerFiles> {
  const chain = chainOf(config.rootfs.diff_ids);
  return Promise.all(chain.map((chainId, at) => blobs.blob(chainId, signal, at < baseLayers)));
}

function exportedPlatform(
  { config: document, baseLayers }: PlatformResult,
  files: LayerFiles,
  { format, compression, epoch, annotations }: ExportOptions,
): ExportedPlatform {
  const types = MEDIA_TYPES[format];
  const rewritten = epoch === undefined ? {} : { [REWRITTEN]: String(epoch) };
  const layers = files.map(({ digest, sizeBytes }, at) =>
    described({ mediaType: types.layer[compression], digest, size: sizeBytes }, at < baseLayers ? {} : rewritten),
  );
  const rootfs = { ...document.rootfs, diff_ids: files.map(({ diffId }) => diffId) };
  const bytes = Buffer.from(goJson({ ...document, rootfs }, 0));
  const config = {
    bytes,
    descriptor: { mediaType: types.config, digest: digestOf(bytes), size: bytes.length },
  };
  const platform = platformOf(document);
  const name = [platform.os, platform.architecture, platform.variant].filter(Boolean).join('/');
  const manifest = manifestDocument(format, config.descriptor, layers, annotations.at('manifest', name));
  return {
    layers,
    config,
    manifest: {
      bytes: manifest.bytes,
      descriptor: described(manifest.descriptor, annotations.at('manifest-descriptor', name), platform),
    },
  };
}

function pathOf(digest: Digest): string {
  return `blobs/${digest.replace(':', '/')}`;
}
