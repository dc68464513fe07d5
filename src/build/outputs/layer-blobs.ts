/** Layers in the form in which they leave this engine, in files that are there as long as an export lasts. */
import { createReadStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { Compression, LayerFile } from './compress-layer.js';

export interface LayerForm {
  readonly compression: Compression;
  readonly level: number | undefined;
  /** Later times of files become this one, in seconds since 1970. */
  readonly epoch: number | undefined;
}

export interface LayerBlobsDeps {
  readonly layers: Pick<LayerStore, 'openTar'>;
  readonly pool: WorkerPool;
  readonly tmpDir: string;
}

export class LayerBlobs {
  readonly #files = new Map<Digest, Promise<LayerFile>>();
  readonly #paths = new Map<Digest, string>();

  private constructor(
    private readonly deps: LayerBlobsDeps,
    private readonly directory: string,
    private readonly form: LayerForm,
  ) {}

  static async open(deps: LayerBlobsDeps, form: LayerForm): Promise<LayerBlobs> {
    return new LayerBlobs(deps, await mkdtemp(join(deps.tmpDir, 'build-export-')), form);
  }

  /** Makes the blob of a layer, once. The caller holds the layer. */
  blob(chainId: Digest, signal: AbortSignal): Promise<LayerFile> {
    const file = this.#files.get(chainId) ?? this.#make(chainId, signal);
    this.#files.set(chainId, file);
    return file;
  }

  /** @param digest of a blob that has been made. */
  read(digest: Digest): Readable {
    const path = this.#paths.get(digest);
    if (path === undefined) throw new Error(`there is no blob ${digest}`);
    return createReadStream(path);
  }

  /** Removes the files. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#files.values());
    await rm(this.directory, { recursive: true, force: true });
  }

  async #make(chainId: Digest, signal: AbortSignal): Promise<LayerFile> {
    const { close, ...tar } = this.deps.layers.openTar(chainId);
    const path = join(this.directory, chainId.slice('sha256:'.length));
    try {
      const file = await this.deps.pool.run('compress-layer', { ...tar, ...this.form, path }, { signal });
      this.#paths.set(file.digest, path);
      return file;
    } finally {
      close();
    }
  }
}
