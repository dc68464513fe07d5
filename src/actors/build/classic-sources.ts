/** Where the COPY and ADD of a classic build take files from: its context, stages and images, and addresses. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { AddInstruction } from '../../build/dockerfile/ast.js';
import { namedBy } from '../../build/dockerfile/ignore-file.js';
import type { SourceTree } from '../../build/files/copy-files.js';
import { orNoFile } from '../../build/files/small-file.js';
import type { BuildSources } from '../../ports/build-sources.js';
import type { BuildRequest, ContextTree } from '../../ports/build.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { detachMount } from '../../sys/mount/mount.js';
import { downloadFile } from './download-file.js';
import type { StepLayers } from './step-layers.js';

export interface ClassicSourcesDeps {
  readonly layers: LayerStore;
  readonly sources: BuildSources;
  readonly tmpDir: string;
}

export class ClassicSources {
  readonly #cleanup: (() => Promise<unknown>)[] = [];
  #tree: Promise<ContextTree> | undefined;
  #ignore: Promise<readonly string[]> | undefined;

  constructor(
    private readonly deps: ClassicSourcesDeps,
    private readonly request: BuildRequest,
    private readonly layers: StepLayers,
    private readonly signal: AbortSignal,
  ) {}

  async download(url: string, { destination, checksum }: AddInstruction): Promise<SourceTree> {
    const { observer } = this.request;
    const order = { url, checksum, destination, onEvent: observer.classic.bind(observer) };
    const loaded = await downloadFile(this.deps.sources, order, this.signal);
    this.#cleanup.push(() => loaded.release());
    return { root: loaded.directory, sources: [loaded.path], ignore: [], exclude: [], unpacks: false };
  }

  async ofContext(source: string): Promise<SourceTree> {
    this.#tree ??= this.request.context.tree({ ignore: [], follow: [] }, this.signal);
    return { root: (await this.#tree).directory, sources: [source], ignore: await this.#ignored(), exclude: [] };
  }

  /** Mounts the files of a stage or an image for reading, until the build ends. */
  async rootOf(topLayer: Digest | undefined): Promise<string> {
    const place = await mkdtemp(join(this.deps.tmpDir, 'build-from-'));
    this.#cleanup.push(() => rm(place, { recursive: true, force: true, maxRetries: 0 }));
    const root = join(place, 'root');
    await mkdir(root);
    if (topLayer === undefined) return root;
    this.layers.hold(topLayer);
    await this.deps.layers.mountImage(topLayer, root);
    this.#cleanup.push(() => detachMount(root));
    return root;
  }

  async close(): Promise<void> {
    for (const clean of this.#cleanup.splice(0).toReversed()) await clean().catch(() => undefined);
  }

  /** The client has left out what its ignore file names; only the two files themselves it had to send. */
  #ignored(): Promise<readonly string[]> {
    const files = ['.dockerignore', this.request.dockerfile.name];
    this.#ignore ??= orNoFile(this.request.context.readFile('.dockerignore')).then((text) =>
      namedBy(text ?? '', files),
    );
    return this.#ignore;
  }
}
