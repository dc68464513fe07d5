/**
 * The classic builder: one step after the other, each of which leaves an image. It says what it does in the words that
 * clients look for.
 */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type {
  AddInstruction,
  CopyInstruction,
  Dockerfile,
  Instruction,
  RunInstruction,
} from '../../build/dockerfile/ast.js';
import { partsAtLines } from '../../build/dockerfile/dockerfile-error.js';
import { namedBy } from '../../build/dockerfile/ignore-file.js';
import { PortBudget } from '../../build/dockerfile/ports.js';
import { isProxyArg, StageScope } from '../../build/dockerfile/scope.js';
import type { ResolvedStage, StageGraph, StageSource } from '../../build/dockerfile/stage-graph.js';
import type { SourceTree } from '../../build/files/copy-files.js';
import { orNoFile } from '../../build/files/small-file.js';
import { EngineError, invalid, notImplemented } from '../../errors/engine-error.js';
import { eventAttributes, type ImageEmit } from '../../images/removal.js';
import type { BuildSources } from '../../ports/build-sources.js';
import type { BuildRequest, BuildResult, ContextTree } from '../../ports/build.js';
import type { LayerInfo, LayerStore } from '../../ports/storage.js';
import { inTurns } from '../../text/turns.js';
import { detachMount } from '../../sys/mount/mount.js';
import { baseImage, type BaseImageDeps } from './base-image.js';
import { ClassicCache } from './classic-cache.js';
import { ClassicImages, emptyState, stateOf } from './classic-images.js';
import type { ClassicPlan } from './classic-plan.js';
import { configStep } from './config-steps.js';
import {
  absolutePath,
  checkCount,
  type CopyDeps,
  copyFailure,
  copyLayer,
  type CopyPlan,
  digestCopy,
  directoryLayer,
  refuseOutside,
} from './copy-step.js';
import { downloadFile, isAddress } from './download-file.js';
import { COMMAND_FAILED, runContainer, type RunDeps } from './run-container.js';
import { type BuiltStage, shellOf, type StageState } from './stage-state.js';
import { StepLayers } from './step-layers.js';
import { basePlatform, type TargetPlatform } from './target-platform.js';

export interface ClassicDeps extends BaseImageDeps, CopyDeps, RunDeps {
  readonly layers: LayerStore;
  readonly sources: BuildSources;
  readonly emit: ImageEmit;
  readonly tmpDir: string;
}

const short = (id: string): string => id.replace(/^sha256:/, '').slice(0, 12);

export class ClassicBuild {
  readonly #images: ClassicImages;
  readonly #cache: ClassicCache;
  readonly #platform: TargetPlatform;
  readonly #layers: StepLayers;
  readonly #dockerfile: Dockerfile;
  readonly #graph: StageGraph;
  readonly #built = new Map<number, BuiltStage>();
  readonly #usedArgs = new Set<string>();
  readonly #ports = new PortBudget();
  readonly #cleanup: (() => Promise<unknown>)[] = [];
  #tree: Promise<ContextTree> | undefined;
  #ignore: Promise<readonly string[]> | undefined;
  #step = 0;
  #steps = 0;

  constructor(
    private readonly deps: ClassicDeps,
    private readonly request: BuildRequest,
    { dockerfile, graph, platform }: ClassicPlan,
    private readonly signal: AbortSignal,
  ) {
    this.#images = new ClassicImages(deps.images, deps.emit);
    this.#cache = new ClassicCache(deps, this.#images, request);
    this.#layers = new StepLayers(deps.layers);
    this.#dockerfile = dockerfile;
    this.#graph = graph;
    this.#platform = platform;
  }

  async run(): Promise<BuildResult> {
    const { globalArgs } = this.#dockerfile;
    const stages = this.#graph.stages.slice(0, this.#graph.target + 1);
    this.#steps = stages.reduce((sum, { stage }) => sum + 1 + stage.instructions.length, globalArgs.length);
    this.#steps += this.request.labels.size;
    try {
      for (const { original, args } of globalArgs) {
        this.#announce(original);
        this.#say('\n');
        for (const { key } of args) this.#usedArgs.add(key);
      }
      for (const stage of stages) await this.#buildStage(stage);
      const last = this.#built.get(this.#graph.target)?.state;
      if (last?.image === undefined) throw invalid('No image was generated. Is your Dockerfile empty?');
      const unusedArgs = [...this.request.buildArgs.keys()].filter(
        (key) => !this.#usedArgs.has(key) && !isProxyArg(key),
      );
      if (unusedArgs.length > 0)
        this.#say(`[Warning] One or more build-args [${unusedArgs.join(' ')}] were not consumed\n`);
      this.#say(`Successfully built ${short(last.image)}\n`);
      for (const output of this.request.outputs)
        if (output.kind === 'image') for (const name of output.names) await this.#tag(name, last.image);
      return { platforms: [], imageId: last.image, unusedArgs, release: () => Promise.resolve() };
    } finally {
      for (const clean of this.#cleanup.splice(0).toReversed()) await clean().catch(() => undefined);
      await this.#layers.release();
    }
  }

  async #tag(name: string, id: NonNullable<StageState['image']>): Promise<void> {
    const { images, emit } = this.deps;
    await images.tag(name, id);
    const image = images.get(id);
    if (image) emit('tag', id, eventAttributes(image, name));
    this.#say(`Successfully tagged ${name}\n`);
  }

  async #buildStage(resolved: ResolvedStage): Promise<void> {
    const { stage } = resolved;
    this.#announce(stage.original);
    let state = await this.#begin(resolved);
    const parent = resolved.base.kind === 'stage' ? this.#built.get(resolved.base.index)?.scope : undefined;
    const imageEnv = (state.config.Env ?? []).map((entry): [string, string] => {
      const at = entry.indexOf('=');
      return at < 0 ? [entry, ''] : [entry.slice(0, at), entry.slice(at + 1)];
    });
    const begin = { imageEnv, stage: parent };
    const { globals, expander } = this.#graph;
    const made = StageScope.parts(begin, globals, this.request.buildArgs, expander);
    const scope = await inTurns(partsAtLines(stage.lines, made), this.signal);
    const triggers = state.config.OnBuild ?? [];
    if (triggers.length > 0) {
      this.#say(`# Executing ${triggers.length} build trigger${triggers.length > 1 ? 's' : ''}\n`);
      await inTurns(this.#graph.addTriggers(stage.index, triggers), this.signal);
      state = { ...state, config: { ...state.config, OnBuild: null } };
    }
    const work = { state, usesCache: this.request.noCache === undefined };
    for (const [index, instruction] of resolved.instructions.entries()) {
      if (index >= resolved.triggers) this.#announce(instruction.original);
      this.signal.throwIfAborted();
      await this.#perform(work, scope, instruction, resolved);
      if (work.state.image !== undefined) this.#say(` ---> ${short(work.state.image)}\n`);
    }
    if (stage.index === this.#graph.target) await this.#addLabels(work);
    this.#built.set(stage.index, { state: work.state, scope });
    const { image } = work.state;
    if (image !== undefined) this.request.observer.classic({ kind: 'stage', imageId: image });
  }

  async #begin({ base, platform }: ResolvedStage): Promise<StageState> {
    if (base.kind === 'stage') {
      const built = this.#built.get(base.index);
      if (!built) throw invalid('a stage is based on one that is not built');
      this.#say(` ---> ${short(built.state.image ?? '')}\n`);
      return { ...built.state, hasOwnCmd: false };
    }
    if (base.kind === 'context') throw notImplemented('named contexts need BuildKit');
    if (base.kind === 'scratch') {
      this.#say(' ---> \n');
      return emptyState(this.#platform);
    }
    const image = await this.#image(base.name, platform);
    this.#say(` ---> ${short(image.id)}\n`);
    return stateOf(image, { hasOwnCmd: false });
  }

  async #image(name: string, platform = basePlatform(this.#platform)): ReturnType<typeof baseImage> {
    const onLine = (text: string): void => this.request.observer.classic({ kind: 'progress', text });
    const image = await baseImage(this.deps, { name, platform, onLine }, this.request, this.signal);
    const letGo = this.deps.images.hold(image.id);
    this.#cleanup.push(async () => letGo());
    return image;
  }

  async #perform(
    work: { state: StageState; usesCache: boolean },
    scope: StageScope,
    written: Instruction,
    resolved: ResolvedStage,
  ): Promise<void> {
    const instruction = await inTurns(scope.next(written), this.signal);
    if (instruction.kind === 'ARG') for (const { key } of instruction.args) this.#usedArgs.add(key);
    if (instruction.kind === 'RUN') return this.#run(work, scope, instruction);
    if (instruction.kind === 'COPY' || instruction.kind === 'ADD')
      return this.#copy(work, instruction, resolved.sources.get(written)?.[0]);
    if (instruction.kind === 'WORKDIR') {
      const path = absolutePath(work.state, instruction.path);
      const state = { ...work.state, config: { ...work.state.config, WorkingDir: path } };
      return this.#commit(work, state, [...shellOf(state.config), `#(nop) WORKDIR ${path}`], () =>
        path === '/' ? Promise.resolve(undefined) : directoryLayer(this.deps, this.#layers, state, path),
      );
    }
    if (instruction.kind === 'EXPOSE') this.#ports.spend(instruction.ports);
    const { state, said } = configStep(work.state, instruction, written);
    const command = [...shellOf(state.config), '#(nop) ', said];
    return this.#commit(work, state, command, () => Promise.resolve(undefined));
  }

  async #addLabels(work: { state: StageState; usesCache: boolean }): Promise<void> {
    for (const [key, value] of [...this.request.labels].sort(([a], [b]) => (a < b ? -1 : 1))) {
      this.#announce(`LABEL ${key}=${value}`);
      const Labels = { ...work.state.config.Labels, [key]: value };
      const state = { ...work.state, config: { ...work.state.config, Labels } };
      const command = [...shellOf(state.config), '#(nop) ', `LABEL ${key}=${value}`];
      await this.#commit(work, state, command, async () => undefined);
      this.#say(` ---> ${short(work.state.image ?? '')}\n`);
    }
  }

  /** Takes the image that the same step left before, or makes a new one. The state is the one after the step. */
  async #commit(
    work: { state: StageState; usesCache: boolean },
    state: StageState,
    command: readonly string[],
    make: () => Promise<LayerInfo | undefined>,
  ): Promise<void> {
    if (await this.#fromCache(work, state, command)) return;
    work.state = await this.#images.commit({ state, command, layer: await make(), container: '' });
  }

  async #fromCache(
    work: { state: StageState; usesCache: boolean },
    state: StageState,
    command: readonly string[],
  ): Promise<boolean> {
    const image = work.usesCache ? await this.#cache.find(state, command) : undefined;
    work.usesCache = image !== undefined || state.image === undefined ? work.usesCache : false;
    if (image === undefined) return false;
    this.#say(' ---> Using cache\n');
    work.state = { ...stateOf(image, state), author: state.author };
    return true;
  }

  async #run(
    work: { state: StageState; usesCache: boolean },
    scope: StageScope,
    { command, flags }: RunInstruction,
  ): Promise<void> {
    const [flag] = flags;
    if (flag !== undefined) {
      throw invalid(
        `the --${flag} option requires BuildKit. Refer to https://docs.docker.com/go/buildkit/ to learn how to build ` +
          'images with BuildKit enabled',
      );
    }
    const { state } = work;
    if (state.image === undefined) throw invalid('Please provide a source image with `from` prior to run');
    const argv = command.isShellForm ? [...shellOf(state.config), ...command.args] : [...command.args];
    const own = new Set((state.config.Env ?? []).map((entry) => entry.split('=', 1)[0]));
    const args = scope.args.flatMap(({ key, value }) =>
      value === undefined || own.has(key) ? [] : [`${key}=${value}`],
    );
    const proxies = [...this.request.buildArgs].flatMap(([key, value]) =>
      isProxyArg(key) && value !== undefined ? [`${key}=${value}`] : [],
    );
    const shown = args.length + proxies.length > 0 ? [`|${args.length}`, ...args.toSorted(), ...argv] : argv;
    if (await this.#fromCache(work, state, shown)) return;
    const { observer, classic, run } = this.request;
    const { id, exitCode } = await runContainer(
      this.deps,
      {
        image: state.image,
        state,
        argv,
        env: [...args, ...proxies],
        settings: run,
        output: async (stream, bytes) => {
          observer.classic({ kind: 'output', stream, bytes });
          await observer.ready?.();
        },
        created: (made) => this.#say(` ---> Running in ${short(made)}\n`),
      },
      this.signal,
    );
    if (exitCode !== 0) {
      if (classic?.forceRemove) await this.#remove(id);
      throw new EngineError('internal', `The command '${argv.join(' ')}' returned a non-zero code: ${exitCode}`, {
        code: COMMAND_FAILED,
        details: { exitCode },
      });
    }
    const layer = await this.#layers.commit(id);
    work.state = await this.#images.commit({ state, command: shown, layer, container: id });
    if (classic?.removeContainers || classic?.forceRemove) await this.#remove(id);
  }

  async #remove(id: string): Promise<void> {
    await this.deps.containers.remove(id, { force: true, volumes: true });
    this.#say(` ---> Removed intermediate container ${short(id)}\n`);
  }

  async #copy(
    work: { state: StageState; usesCache: boolean },
    instruction: AddInstruction | CopyInstruction,
    from: StageSource | undefined,
  ): Promise<void> {
    const { kind, chmod, inlineFiles, sources, destination } = instruction;
    if (chmod !== '' || inlineFiles.length > 0) {
      throw invalid(
        chmod === ''
          ? `${kind} failed: no source files were specified`
          : 'the --chmod option requires BuildKit. Refer to https://docs.docker.com/go/buildkit/ to learn how to ' +
              'build images with BuildKit enabled',
      );
    }
    if (sources.length === 0) throw invalid(`${kind} failed: no source files were specified`);
    refuseOutside(kind, sources);
    try {
      const root = from === undefined ? undefined : await this.#rootOf(from);
      const treeOf = async (source: string): Promise<SourceTree> =>
        kind === 'ADD' && isAddress(source)
          ? this.#download(source, instruction)
          : {
              root: root ?? (await this.#context()).directory,
              sources: [source],
              ignore: root === undefined ? await this.#ignored() : [],
              exclude: [],
            };
      const trees: SourceTree[] = [];
      for (const source of sources) trees.push(await treeOf(source));
      const plan: CopyPlan = {
        instruction,
        trees,
        isMapped: root !== undefined,
        belongsToRoot: root === undefined,
        isClassic: true,
      };
      const digest = await digestCopy(this.deps, plan, this.signal);
      checkCount(instruction, digest.count);
      const owner = instruction.chown === '' ? '' : `--chown=${instruction.chown} `;
      const said = `#(nop) ${kind} ${owner}${digest.kind}:${digest.hex} in ${destination} `;
      await this.#commit(work, work.state, [...shellOf(work.state.config), said], () =>
        copyLayer(this.deps, this.#layers, work.state, plan, this.signal),
      );
    } catch (error) {
      throw copyFailure(error, kind, from !== undefined);
    }
  }

  async #download(url: string, { destination, checksum }: AddInstruction): Promise<SourceTree> {
    const { observer } = this.request;
    const order = { url, checksum, destination, onEvent: observer.classic.bind(observer) };
    const loaded = await downloadFile(this.deps.sources, order, this.signal);
    this.#cleanup.push(() => loaded.release());
    return { root: loaded.directory, sources: [loaded.path], ignore: [], exclude: [], unpacks: false };
  }

  #context(): Promise<ContextTree> {
    this.#tree ??= this.request.context.tree({ ignore: [], follow: [] }, this.signal);
    return this.#tree;
  }

  /** The client has left out what its ignore file names; only the two files themselves it had to send. */
  #ignored(): Promise<readonly string[]> {
    const files = ['.dockerignore', this.request.dockerfile.name];
    this.#ignore ??= orNoFile(this.request.context.readFile('.dockerignore')).then((text) =>
      namedBy(text ?? '', files),
    );
    return this.#ignore;
  }

  /** Mounts the files of a stage or an image for reading, until the build ends. */
  async #rootOf(from: StageSource): Promise<string> {
    let topLayer: StageState['topLayer'];
    if (from.kind === 'stage') topLayer = this.#built.get(from.index)?.state.topLayer;
    else if (from.kind === 'image') topLayer = (await this.#image(from.name, undefined)).topLayer;
    else throw invalid(`invalid from flag value ${from.kind}`);
    const place = await mkdtemp(join(this.deps.tmpDir, 'build-from-'));
    this.#cleanup.push(() => rm(place, { recursive: true, force: true, maxRetries: 0 }));
    const root = join(place, 'root');
    await mkdir(root);
    if (topLayer === undefined) return root;
    this.#layers.hold(topLayer);
    await this.deps.layers.mountImage(topLayer, root);
    this.#cleanup.push(() => detachMount(root));
    return root;
  }

  #announce(original: string): void {
    this.#step++;
    this.#say(`Step ${this.#step}/${this.#steps} : ${original}`);
    this.#say('\n');
  }

  #say(text: string): void {
    this.request.observer.classic({ kind: 'text', text });
  }
}
