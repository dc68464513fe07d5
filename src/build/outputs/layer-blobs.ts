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

/** Pieces in which files of layers are read: each one costs a message to the client. */
const PIECE_BYTES = 1024 * 1024;

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

  /**
   * Makes the blob of a layer, once. The caller holds the layer.
   * @param keepsTimes is set for layers that the build did not make, as BuildKit leaves those of the base image alone.
   */
  blob(chainId: Digest, signal: AbortSignal, keepsTimes = false): Promise<LayerFile> {
    const file = this.#files.get(chainId) ?? this.#make(chainId, keepsTimes, signal);
    this.#files.set(chainId, file);
    return file;
  }

  /** @param digest of a blob that has been made. */
  read(digest: Digest): Readable {
    return createReadStream(this.path(digest), { highWaterMark: PIECE_BYTES });
  }

  /** Returns the file of a blob that has been made. */
  path(digest: Digest): string {
    const path = this.#paths.get(digest);
    if (path === undefined) throw new Error(`there is no blob ${digest}`);
    return path;
  }

  /** Removes the files. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#files.values());
    await rm(this.directory, { recursive: true, force: true });
  }

  async #make(chainId: Digest, keepsTimes: boolean, signal: AbortSignal): Promise<LayerFile> {
    const { close, ...tar } = this.deps.layers.openTar(chainId);
    const path = join(this.directory, chainId.slice('sha256:'.length));
    try {
      const { compression, level } = this.form;
      const epoch = keepsTimes ? undefined : this.form.epoch;
      const file = await this.deps.pool.run('compress-layer', { ...tar, compression, level, epoch, path }, { signal });
      this.#paths.set(file.digest, path);
      return file;
    } finally {
      close();
    }
  }
}
