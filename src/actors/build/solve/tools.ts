/** The drivers that the steps of one build work with, and what they hold until the build ends. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { BuildCache, HeldRecord } from '../../../ports/build-cache.js';
import type { BuildSources } from '../../../ports/build-sources.js';
import type { BuildMaterial, BuildRequest } from '../../../ports/build.js';
import type { LayerBlobsDeps } from '../../../build/outputs/layer-blobs.js';
import type { LayerFileDeps } from '../../../images/layer-from-file.js';
import type { ImageEmit } from '../../../images/removal.js';
import type { IdMaps } from '../../../ports/id-maps.js';
import type { Logger } from '../../../ports/logger.js';
import type { Digest, LayerStore } from '../../../ports/storage.js';
import { detachMount } from '../../../sys/mount/mount.js';
import type { Slots } from '../../kit/slots.js';
import type { ImageConfigs } from '../image-configs.js';
import type { BaseImageDeps } from '../base-image.js';
import type { CopyDeps } from '../copy-step.js';
import type { RemoteCaches } from '../remote-caches.js';
import type { StepRunDeps } from '../run/run-step.js';
import { SharedShim } from '../run/shared-shim.js';
import { StepRooms } from '../run/step-room.js';
import { StepLayers } from '../step-layers.js';
import type { StepClaims } from './claims.js';
import type { SourceFiles, StepResult } from './step-result.js';

/** The parts of the daemon that all builds share. */
export interface SolveDeps extends BaseImageDeps, CopyDeps, StepRunDeps {
  readonly layers: LayerStore;
  readonly cache: BuildCache;
  readonly configs: ImageConfigs;
  readonly sources: BuildSources;
  readonly remoteCaches: Pick<RemoteCaches, 'ofImage' | 'ofRegistry' | 'ofContent'>;
  readonly claims: StepClaims;
  /** As many as processes of steps may run at a time. */
  readonly processes: Slots;
  readonly emit: ImageEmit;
  readonly tmpDir: string;
  readonly log: Logger;
  /** For layers that become files. */
  readonly blobParts: LayerBlobsDeps & LayerFileDeps;
}

export class SolveTools {
  readonly layers: StepLayers;
  readonly shim: SharedShim;
  readonly rooms: StepRooms;
  /** RUNs of the plan that have not begun, nor come from the cache. */
  runsAhead = 0;
  /** Tells of what steps have fetched, by their digests. */
  readonly materials = new Map<string, BuildMaterial>();
  readonly #records: HeldRecord[] = [];
  readonly #roots = new Map<string, Promise<string>>();
  readonly #cleanup: (() => Promise<unknown>)[] = [];

  constructor(
    readonly deps: SolveDeps,
    readonly request: BuildRequest,
  ) {
    this.layers = new StepLayers(deps.layers);
    this.shim = new SharedShim(deps.tasks);
    this.rooms = new StepRooms(deps, request, () => this.runsAhead > 0);
  }

  /** Keeps a record of the cache, with its layer, until the build ends. */
  hold(record: HeldRecord): void {
    this.#records.push(record);
  }

  /** Has something given back when the build ends; what was taken last goes first. */
  atEnd(giveBack: () => Promise<unknown>): void {
    this.#cleanup.push(giveBack);
  }

  /** Makes a directory that is there until the build ends. */
  async directory(prefix: string): Promise<string> {
    const place = await mkdtemp(join(this.deps.tmpDir, prefix));
    this.atEnd(() => rm(place, { recursive: true, force: true }));
    return place;
  }

  /** Returns the files of a result for reading. @param maps shows those of a layer as the files of these users. */
  async filesOf({ layer, files }: Pick<StepResult, 'layer' | 'files'>, maps?: IdMaps): Promise<SourceFiles> {
    if (files) return files;
    const key = `${maps ? 'mapped' : ''} ${layer ?? ''}`;
    const root = this.#roots.get(key) ?? this.#mount(layer, maps);
    this.#roots.set(key, root);
    return { directory: await root, ignore: [], isMapped: true };
  }

  /** @param layer undefined: an empty directory. */
  async #mount(layer: Digest | undefined, maps: IdMaps | undefined): Promise<string> {
    const root = join(await this.directory('build-from-'), 'root');
    await this.mountAt(layer, root, maps);
    return root;
  }

  /** Makes a directory that shows the files of a layer until the build ends. @param layer undefined: it is empty. */
  async mountAt(layer: Digest | undefined, root: string, maps?: IdMaps): Promise<void> {
    await mkdir(root);
    if (layer === undefined) return;
    this.layers.hold(layer);
    await this.deps.layers.mountImage(layer, root, undefined, maps);
    this.atEnd(() => detachMount(root));
  }

  /** Gives everything back. A part that fails does not keep the others. */
  async close(): Promise<void> {
    const { log } = this.deps;
    const failed = (error: unknown): void => log.error({ err: error }, 'a build has left something behind');
    const ended = [this.shim.end().catch(failed), this.rooms.end().catch(failed)];
    for (const giveBack of this.#cleanup.splice(0).toReversed()) await giveBack().catch(failed);
    for (const record of this.#records.splice(0)) await record.release().catch(failed);
    await this.layers.release().catch(failed);
    await Promise.all(ended);
  }
}
