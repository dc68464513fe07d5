/**
 * The classic builder: one step after the other, each of which leaves an image. It says what it does in the words that
 * clients look for.
 */
import { randomBytes } from 'node:crypto';
import type {
  AddInstruction,
  CopyInstruction,
  Dockerfile,
  Instruction,
  RunInstruction,
  Stage,
} from '../../build/dockerfile/ast.js';
import { partsAtLines } from '../../build/dockerfile/dockerfile-error.js';
import { PortBudget } from '../../build/dockerfile/ports.js';
import { isProxyArg, StageScope } from '../../build/dockerfile/scope.js';
import type { ResolvedStage, StageGraph, StageSource } from '../../build/dockerfile/stage-graph.js';
import type { SourceTree } from '../../build/files/copy-files.js';
import { EngineError, invalid, isEngineError, notImplemented } from '../../errors/engine-error.js';
import { eventAttributes, type ImageEmit } from '../../images/removal.js';
import type { BuildRequest, BuildResult } from '../../ports/build.js';
import type { LayerInfo } from '../../ports/storage.js';
import { inTurns } from '../../text/turns.js';
import { baseImage, type BaseImageDeps } from './base-image.js';
import { ClassicCache } from './classic-cache.js';
import { ClassicImages, emptyState, stateOf } from './classic-images.js';
import type { ClassicPlan } from './classic-plan.js';
import { ClassicSources, type ClassicSourcesDeps } from './classic-sources.js';
import { configStep, inClassicWords } from './config-steps.js';
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
import { isAddress } from './download-file.js';
import { COMMAND_FAILED, createContainer, runContainer, type RunDeps } from './run-container.js';
import { type BuiltStage, shellOf, type StageState } from './stage-state.js';
import { StepLayers } from './step-layers.js';
import { basePlatform, type TargetPlatform } from './target-platform.js';

export interface ClassicDeps extends BaseImageDeps, ClassicSourcesDeps, CopyDeps, RunDeps {
  readonly emit: ImageEmit;
}

/** A stage between two steps. */
interface Work {
  state: StageState;
  usesCache: boolean;
}

const short = (id: string): string => id.replace(/^sha256:/, '').slice(0, 12);

export class ClassicBuild {
  readonly #images: ClassicImages;
  readonly #cache: ClassicCache;
  readonly #platform: TargetPlatform;
  readonly #layers: StepLayers;
  readonly #sources: ClassicSources;
  readonly #dockerfile: Dockerfile;
  readonly #graph: StageGraph;
  readonly #built = new Map<number, BuiltStage>();
  readonly #usedArgs = new Set<string>();
  readonly #ports = new PortBudget();
  readonly #held: (() => void)[] = [];
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
    this.#sources = new ClassicSources(deps, request, this.#layers, signal);
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
        for (const { key } of args) this.#usedArgs.add(key);
      }
      for (const stage of stages) await this.#buildStage(stage);
      const last = this.#built.get(this.#graph.target)?.state;
      if (last?.image === undefined) throw invalid('No image was generated. Is your Dockerfile empty?');
      const unusedArgs = [...this.request.buildArgs.keys()]
        .filter((key) => !this.#usedArgs.has(key) && !isProxyArg(key))
        .toSorted();
      if (unusedArgs.length > 0)
        this.#say(`[Warning] One or more build-args [${unusedArgs.join(' ')}] were not consumed\n`);
      this.#say(`Successfully built ${short(last.image)}\n`);
      for (const output of this.request.outputs)
        if (output.kind === 'image') for (const name of output.names) await this.#tag(name, last.image);
      return { platforms: [], imageId: last.image, unusedArgs, release: () => Promise.resolve() };
    } finally {
      await this.#sources.close();
      for (const letGo of this.#held.splice(0)) letGo();
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
    const isTaken = this.#graph.stages.slice(0, stage.index).some(({ stage: { name } }) => name === stage.name);
    if (stage.name !== '' && isTaken) throw invalid(`${stage.name} stage name already used`);
    this.#announce(stage.original);
    this.#refuse(stage);
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
      this.#say(`# Executing ${triggers.length} build trigger`);
      if (triggers.length > 1) this.#say('s');
      this.#say('\n');
      await inTurns(this.#graph.addTriggers(stage.index, triggers), this.signal);
      state = { ...state, config: { ...state.config, OnBuild: null } };
    }
    const work: Work = { state, usesCache: this.request.noCache === undefined };
    const perform = async (instruction: Instruction): Promise<void> => {
      this.signal.throwIfAborted();
      await this.#perform(work, scope, instruction, resolved);
    };
    for (const trigger of resolved.instructions.slice(0, resolved.triggers)) await perform(trigger);
    this.#sayImage(work);
    for (const instruction of resolved.instructions.slice(resolved.triggers)) {
      this.#announce(instruction.original);
      await perform(instruction);
      this.#sayImage(work);
    }
    if (stage.index === this.#graph.target) await this.#addLabels(work);
    this.#built.set(stage.index, { state: work.state, scope });
    const { image } = work.state;
    if (image !== undefined) this.request.observer.classic({ kind: 'stage', imageId: image });
  }

  #refuse(part: Stage | Instruction): void {
    const failure = this.#graph.failureOf(part);
    if (failure !== undefined) throw failure;
  }

  async #begin({ base, platform }: ResolvedStage): Promise<StageState> {
    if (base.kind === 'stage') {
      const built = this.#built.get(base.index);
      if (!built) throw invalid('a stage is based on one that is not built');
      return { ...built.state, hasOwnCmd: false };
    }
    if (base.kind === 'context') throw notImplemented('named contexts need BuildKit');
    if (base.kind === 'scratch') return emptyState(this.#platform);
    return stateOf(await this.#image(base.name, platform), { hasOwnCmd: false });
  }

  async #image(name: string, platform = basePlatform(this.#platform)): ReturnType<typeof baseImage> {
    const onLine = (text: string): void => this.request.observer.classic({ kind: 'progress', text });
    const image = await baseImage(this.deps, { name, platform, onLine }, this.request, this.signal);
    this.#held.push(this.deps.images.hold(image.id));
    return image;
  }

  async #perform(work: Work, scope: StageScope, written: Instruction, resolved: ResolvedStage): Promise<void> {
    this.#refuse(written);
    const instruction = await inTurns(scope.next(written), this.signal);
    if (instruction.kind === 'ARG') for (const { key } of instruction.args) this.#usedArgs.add(key);
    if (instruction.kind === 'RUN') return this.#run(work, scope, instruction);
    if (instruction.kind === 'COPY' || instruction.kind === 'ADD')
      return this.#copy(work, instruction, resolved.sources.get(written)?.[0]);
    if (instruction.kind === 'WORKDIR') {
      const path = absolutePath(work.state, instruction.path);
      const state = { ...work.state, config: { ...work.state.config, WorkingDir: path } };
      return this.#configure(work, state, [...shellOf(state.config), `#(nop) WORKDIR ${path}`], () =>
        path === '/' ? Promise.resolve(undefined) : directoryLayer(this.deps, this.#layers, state, path),
      );
    }
    if (instruction.kind === 'EXPOSE') inClassicWords(() => this.#ports.spend(instruction.ports));
    const { state, said } = configStep(work.state, instruction, written);
    const command = [...shellOf(state.config), '#(nop) ', said];
    return this.#configure(work, state, command);
  }

  async #addLabels(work: Work): Promise<void> {
    for (const [key, value] of [...this.request.labels].sort(([a], [b]) => (a < b ? -1 : 1))) {
      this.#announce(`LABEL ${key}=${value}`);
      const Labels = { ...work.state.config.Labels, [key]: value };
      const state = { ...work.state, config: { ...work.state.config, Labels } };
      const command = [...shellOf(state.config), '#(nop) ', `LABEL ${key}=${value}`];
      await this.#configure(work, state, command);
      this.#sayImage(work);
    }
  }

  /**
   * The same for a step that dockerd makes a container for, which is never started. Here there is one only if it is to
   * stay.
   */
  async #configure(
    work: Work,
    state: StageState,
    command: readonly string[],
    make: () => Promise<LayerInfo | undefined> = async () => undefined,
  ): Promise<void> {
    if (await this.#fromCache(work, state, command)) return;
    const isRemoved = this.#removes || state.image === undefined;
    const container = isRemoved
      ? randomBytes(32).toString('hex')
      : await createContainer(this.deps, { image: state.image, state, argv: command, settings: this.request.run });
    this.#say(` ---> Running in ${short(container)}\n`);
    work.state = await this.#images.commit({ state, command, layer: await make(), container });
    if (this.#removes) this.#sayRemoved(container);
  }

  /** Containers of steps that have succeeded are removed. */
  get #removes(): boolean {
    const { classic } = this.request;
    return classic?.removeContainers === true || classic?.forceRemove === true;
  }

  /** Takes the image that the same step left before, or makes a new one. The state is the one after the step. */
  async #commit(
    work: Work,
    state: StageState,
    command: readonly string[],
    make: () => Promise<LayerInfo | undefined>,
  ): Promise<void> {
    if (await this.#fromCache(work, state, command)) return;
    work.state = await this.#images.commit({ state, command, layer: await make(), container: '' });
  }

  async #fromCache(work: Work, state: StageState, command: readonly string[]): Promise<boolean> {
    const image = work.usesCache ? await this.#cache.find(state, command) : undefined;
    work.usesCache &&= image !== undefined;
    if (image === undefined) return false;
    this.#say(' ---> Using cache\n');
    work.state = { ...stateOf(image, state), author: state.author };
    return true;
  }

  async #run(work: Work, scope: StageScope, { command, flags }: RunInstruction): Promise<void> {
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
    if (this.#removes) await this.#remove(id);
  }

  async #remove(id: string): Promise<void> {
    await this.deps.containers.remove(id, { force: true, volumes: true });
    this.#sayRemoved(id);
  }

  async #copy(work: Work, instruction: AddInstruction | CopyInstruction, from: StageSource | undefined): Promise<void> {
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
      const treeOf = async (source: string): Promise<SourceTree> => {
        if (kind === 'ADD' && isAddress(source)) return this.#sources.download(source, instruction);
        return root === undefined
          ? this.#sources.ofContext(source)
          : { root, sources: [source], ignore: [], exclude: [] };
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

  async #rootOf(from: StageSource): Promise<string> {
    if (from.kind === 'stage') return this.#sources.rootOf(this.#built.get(from.index)?.state.topLayer);
    if (from.kind !== 'image') throw invalid(`invalid from flag value ${from.kind}`);
    const image = await this.#image(from.name, undefined).catch((error: unknown) => {
      if (!isEngineError(error) || error.kind === 'cancelled') throw error;
      const message = `invalid from flag value ${from.written}: ${error.message}`;
      throw new EngineError(error.kind, message, { cause: error });
    });
    return this.#sources.rootOf(image.topLayer);
  }

  #announce(original: string): void {
    this.#step++;
    this.#say(`Step ${this.#step}/${this.#steps} : ${original}`);
    this.#say('\n');
  }

  #sayImage({ state: { image } }: Work): void {
    this.#say(` ---> ${short(image ?? '')}\n`);
  }

  #sayRemoved(container: string): void {
    this.#say(` ---> Removed intermediate container ${short(container)}\n`);
  }

  #say(text: string): void {
    this.request.observer.classic({ kind: 'text', text });
  }
}
