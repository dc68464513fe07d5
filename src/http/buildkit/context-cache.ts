/**
 * Directories for the files of clients. Those that the build cache keeps shorten the next transfer, because only
 * changed files travel again. Each belongs to one build at a time.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { NotedDigests } from '../../build/files/kept-digests.js';
import type { WriteFiles } from '../../build/files/write-files.js';
import type { SourceDirectories } from '../../ports/build-cache.js';

export interface ReceivingDirectory {
  readonly path: string;
  /** A file for digests of its files, when it is kept. */
  readonly digests?: string;
  /** @param sizeBytes bytes of its regular files, if they are known. */
  release(sizeBytes?: number): Promise<void>;
}

/** The parts of the work that other threads do. */
export interface ContextWork {
  /** Fills directories. */
  readonly writeFiles: WriteFiles;
  readonly noteDigests: (digests: NotedDigests) => Promise<void>;
}

export class ContextCache {
  readonly #root: string;
  readonly #kept: SourceDirectories;

  /** @param root is for directories that are not kept. */
  constructor(
    root: string,
    kept: SourceDirectories,
    readonly work: ContextWork,
  ) {
    this.#root = root;
    this.#kept = kept;
  }

  /** Removes what a daemon that was killed left. It must be called before the first build. */
  async load(): Promise<void> {
    await rm(this.#root, { recursive: true, force: true });
  }

  /** Returns a directory with the files of earlier builds. @param name is the client's name of the directory. */
  async keeping(key: string, name: string): Promise<ReceivingDirectory> {
    const id = createHash('sha256').update(key).digest('hex');
    const kept = await this.#kept.openSource({ id, description: `local source for ${name}` });
    return { path: kept.directory, digests: kept.digests, release: (sizeBytes) => kept.release(sizeBytes) };
  }

  /** Returns an empty directory, which is gone after its release. */
  async passing(): Promise<ReceivingDirectory> {
    const path = join(this.#root, randomBytes(8).toString('hex'));
    await mkdir(path, { recursive: true, mode: 0o700 });
    return { path, release: () => rm(path, { recursive: true, force: true }) };
  }
}
