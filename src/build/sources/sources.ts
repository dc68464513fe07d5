/** Where files of builds come from besides clients and images. The contract is in ports/build-sources.ts. */
import type { BuildSources, LoadedSource, RemoteOrder } from '../../ports/build-sources.js';
import type { KeptDirectories } from '../../ports/build-cache.js';
import type { WorkerPool } from '../../workers/pool.js';
import { throwIfAborted } from './cancellation.js';
import { GitSource } from './git-source.js';
import { parseGitReference } from './git-url.js';
import { HttpSource } from './http-source.js';
import { KeptSources } from './kept-sources.js';
import { SourceTasks } from './source-tasks.js';

export interface SourcesParts {
  /** Keeps what is fetched. */
  readonly kept: KeptDirectories;
  readonly tmpDir: string;
  readonly pool: WorkerPool;
}

export class Sources implements BuildSources {
  readonly #tasks = new SourceTasks();
  readonly #http: HttpSource;
  readonly #git: GitSource;

  constructor({ kept, tmpDir, pool }: SourcesParts) {
    const parts = { kept: new KeptSources(kept), tasks: this.#tasks, pool, tmpDir };
    this.#http = new HttpSource(parts);
    this.#git = new GitSource(parts);
  }

  async load(order: RemoteOrder, signal: AbortSignal): Promise<LoadedSource> {
    throwIfAborted(signal);
    const reference = order.isFile === true ? undefined : parseGitReference(order.url);
    return reference === undefined ? this.#http.load(order, signal) : this.#git.load(reference, order, signal);
  }

  close(): Promise<void> {
    return this.#tasks.close();
  }
}
