/** Has the build engine do what frontends ask for, and gives its results the forms that clients of BuildKit know. */
import { randomUUID } from 'node:crypto';
import type { ImageConfigs } from '../../actors/build/image-configs.js';
import { earlyWarnings, shownWarning } from '../../build/dockerfile/early-warnings.js';
import type { Host } from '../../build/dockerfile/platform.js';
import { usageFilter } from '../../build/cache/usage-filter.js';
import { platformOf } from '../../build/outputs/image-documents.js';
import { internal, invalid, notFound } from '../../errors/engine-error.js';
import type {
  BuildEngine,
  BuildObserver,
  BuildRequest,
  BuildResult,
  CacheUsage,
  NamedContext,
  PlatformResult,
} from '../../ports/build.js';
import { parsePlatform } from '../../registry/platform.js';
import { goJsonParts } from '../../text/json-parts.js';
import { inTurns } from '../../text/turns.js';
import type { AgentSockets } from './agent-sockets.js';
import type { BuildJob } from './build-jobs.js';
import type { ContextCache } from './context-cache.js';
import { cacheExports, type CacheExportParts } from './cache-exports.js';
import { cacheSources, wantsInlineCache } from './cache-options.js';
import { loadDockerfile, type LoadedDockerfile } from './dockerfile-source.js';
import { provenanceOptions, scanOrder } from './attest-options.js';
import type { BuildOrigin } from './image-attestations.js';
import { requireFrontend, syntaxOf } from './frontend.js';
import { imageLookUp } from './image-look-up.js';
import { imageNames, outputsOf, requireTaken, type ExporterParts } from './exporters.js';
import { describeFailure } from './grpc-status.js';
import { type ContextParts, openMainContext } from './main-context.js';
import { referenceOf } from './references.js';
import { directoryContext, inStep, layoutContext, loginOf, orderedBuild, type OrderedBuild } from './ordered-build.js';
import type { Sessions } from './session.js';
import type { BuiltReference, FrontendAnswer, PruneOrder, Solution, SolveOrder, Solver, Solving } from './solver.js';
import { answer, graphOptions } from './subrequests.js';

const CHECK_CONFIG = 'BUILDKIT_DOCKERFILE_CHECK';
export interface SolverParts extends ContextParts, ExporterParts, CacheExportParts {
  readonly engine: BuildEngine;
  readonly sessions: Sessions;
  readonly contexts: ContextCache;
  readonly agents: AgentSockets;
  readonly configs: Pick<ImageConfigs, 'find'>;
  /** Platforms of Dockerfiles are meant as seen from here. */
  readonly host: Host;
  /** Names of the entitlements that clients may grant. */
  readonly grantable: readonly string[];
}

export class EngineSolver implements Solver {
  readonly #parts: SolverParts;
  /** By the names that frontends have, also of what is still being built. */
  readonly #results = new Map<string, Promise<PlatformResult>>();

  constructor(parts: SolverParts) {
    this.#parts = parts;
  }

  solve(job: BuildJob, order: SolveOrder): Solving {
    let tell: (answer: FrontendAnswer) => void = () => undefined;
    const planned = new Promise<FrontendAnswer>((resolve) => (tell = resolve));
    const solution = this.#solve(job, order, tell);
    return { answer: Promise.race([planned, solution]), solution };
  }

  /** @param tell is called when it is known what is built, where anything is. */
  async #solve(job: BuildJob, order: SolveOrder, tell: (answer: FrontendAnswer) => void): Promise<Solution> {
    requireFrontend(order);
    requireEntitlements(job.request.entitlements, this.#parts.grantable);
    provenanceOptions(order.attrs);
    scanOrder(order.attrs);
    const build = orderedBuild(this.#parts, job, order);
    const context = await openMainContext(build, this.#parts);
    try {
      const loaded = await loadDockerfile(build, context);
      job.progress.setSource(loaded);
      const dockerfile = { ...loaded, ...syntaxOf(order, loaded) };
      const { request } = build.attrs;
      if (request !== undefined) return await this.#answer(build, dockerfile, request);
      let references: readonly BuiltReference[] = [];
      const running = this.#run(build, { dockerfile, context: context.material }, (platforms) => {
        references = this.#referencesOf(build, platforms, running);
        tell({ metadata: platformsMember(platforms), references });
      });
      return await this.#solution(build, await running, references);
    } finally {
      await context.close();
    }
  }

  async #answer(build: OrderedBuild, dockerfile: LoadedDockerfile, request: string): Promise<Solution> {
    const { attrs, job } = build;
    const { host, configs } = this.#parts;
    try {
      return await answer({
        request,
        dockerfile,
        attrs,
        host,
        lookUp: imageLookUp(build, configs),
        inStep: (name, transfer, read) => inStep(build, name, transfer, read),
        warn: (warning) => job.progress.warning(shownWarning(dockerfile.vertex, warning)),
      });
    } catch (error) {
      throw describeFailure(error, dockerfile, dockerfile.vertex);
    }
  }

  async #run(
    build: OrderedBuild,
    origin: BuildOrigin,
    planned: (platforms: readonly string[]) => void,
  ): Promise<BuildResult> {
    const { job } = build;
    const { dockerfile } = origin;
    const request = await this.#request(build, origin);
    const running = this.#parts.engine.start({ ...request, observer: { ...request.observer, planned } });
    const cancel = (): void => running.cancel();
    job.signal.addEventListener('abort', cancel, { once: true });
    if (job.signal.aborted) cancel();
    try {
      const result = await running.result;
      requireTaken(build);
      return result;
    } catch (error) {
      throw describeFailure(error, dockerfile);
    } finally {
      job.signal.removeEventListener('abort', cancel);
    }
  }

  async usage(filters: readonly string[]): Promise<readonly CacheUsage[]> {
    const selects = usageFilter(filters);
    return (await this.#parts.engine.cacheUsage()).filter(selects);
  }

  async prune(order: PruneOrder): Promise<readonly CacheUsage[]> {
    const { removed } = await this.#parts.engine.pruneCache({
      all: order.all,
      keepDurationMs: order.keepMs,
      reservedSpace: order.reservedBytes,
      maxUsedSpace: order.maxUsedBytes,
      minFreeSpace: order.minFreeBytes,
      selects: usageFilter(order.filters),
    });
    return removed;
  }

  async #request(build: OrderedBuild, origin: BuildOrigin): Promise<BuildRequest> {
    const { dockerfile } = origin;
    const { attrs, job } = build;
    const scan = scanOrder(build.order.attrs);
    return {
      id: `${job.ref}/${randomUUID()}`,
      dockerfile,
      context: dockerfile.context,
      namedContexts: await this.#namedContexts(build),
      target: attrs.target,
      buildArgs: attrs.buildArgs,
      labels: attrs.labels,
      platforms: attrs.platforms,
      noCache: attrs.noCache,
      pull: attrs.pull,
      run: {
        networkMode: attrs.networkMode,
        extraHosts: attrs.extraHosts,
        shmSize: attrs.shmSize,
        ulimits: attrs.ulimits.map(({ name, soft, hard }) => ({ Name: name, Soft: soft, Hard: hard })),
        cgroupParent: attrs.cgroupParent,
        hostname: attrs.hostname || (attrs.buildArgs.get('BUILDKIT_SANDBOX_HOSTNAME') ?? ''),
        memory: 0,
        memorySwap: 0,
        cpuShares: 0,
        cpuPeriod: 0,
        cpuQuota: 0,
        cpusetCpus: '',
        cpusetMems: '',
        entitlements: job.request.entitlements,
      },
      cacheFrom: cacheSources(build),
      inlineCache: wantsInlineCache(build),
      cacheTo: cacheExports(build, this.#parts),
      ...(scan && { scan }),
      outputs: outputsOf(build, origin, this.#parts),
      secret: build.secret,
      sshAgent: build.sshAgent,
      credentials: (host) => loginOf(build, host),
      observer: observerOf(job, await warnEarly(build, dockerfile, this.#parts.host)),
    };
  }

  async #namedContexts(build: OrderedBuild): Promise<ReadonlyMap<string, NamedContext>> {
    const named = new Map<string, NamedContext>();
    for (const [name, value] of build.attrs.namedContexts)
      named.set(name.toLowerCase(), await this.#namedContext(build, value));
    return named;
  }

  async #namedContext(build: OrderedBuild, value: string): Promise<NamedContext> {
    const colon = value.indexOf(':');
    const rest = value.slice(colon + 1);
    switch (value.slice(0, colon)) {
      case 'docker-image':
        return { kind: 'image', reference: rest.replace(/^\/\//, '') };
      case 'local':
        return { kind: 'tree', context: directoryContext(build.directory(rest)) };
      case 'input':
        return this.#input(build, rest);
      case 'oci-layout':
        return layoutContext(build, rest.replace(/^\/\//, ''));
      case 'http':
      case 'https':
      case 'git':
      case 'ssh':
        return { kind: 'remote', url: value };
      default:
        throw invalid(`unsupported context source ${value.slice(0, Math.max(colon, 0))}`);
    }
  }

  /** A result of another build that the client hands on. */
  async #input({ order }: OrderedBuild, key: string): Promise<NamedContext> {
    const definition = order.inputs.get(key);
    const reference = definition === undefined ? undefined : referenceOf(definition);
    const result = reference === undefined ? undefined : await this.#results.get(reference);
    if (result === undefined) throw notFound(`invalid input ${key}: no result of this engine`);
    return { kind: 'result', result };
  }

  /** Names what is being built. A linked build begins before the job of this one ends. */
  #referencesOf(
    { job }: OrderedBuild,
    platforms: readonly string[],
    running: Promise<BuildResult>,
  ): readonly BuiltReference[] {
    const references = platforms.map((platform) => ({ platform, id: randomUUID() }));
    for (const [at, { id }] of references.entries()) {
      const one = running.then(({ platforms: built }) => built[at] ?? Promise.reject(internal('nothing was built')));
      one.catch(() => undefined);
      this.#results.set(id, one);
    }
    const forget = (): void => {
      for (const { id } of references) this.#results.delete(id);
    };
    job.signal.addEventListener('abort', forget, { once: true });
    if (job.signal.aborted) forget();
    return references;
  }

  async #solution(build: OrderedBuild, result: BuildResult, references: readonly BuiltReference[]): Promise<Solution> {
    const { signal } = build.job;
    // Layers that cannot be removed now are collected when the daemon starts.
    const release = (): void => void result.release().catch(() => undefined);
    signal.addEventListener('abort', release, { once: true });
    if (signal.aborted) release();
    const [first] = result.platforms;
    const documents: Buffer[] = [];
    for (const { config } of result.platforms) documents.push(Buffer.from(await inTurns(goJsonParts(config))));
    const response = exporterResponse(build, result);
    const isImage = response['containerimage.config.digest'] !== undefined;
    return {
      exporterResponse: response,
      ...(isImage && documents[0] !== undefined && { config: documents[0] }),
      materials: () => first?.recipe().materials ?? [],
      metadata: metadataOf(result, documents),
      references,
    };
  }
}

/**
 * Warns of what the Dockerfile itself says: clients show it beside the step that has brought the file when it comes
 * with the end of that step. Returns the texts.
 */
async function warnEarly({ job, attrs }: OrderedBuild, dockerfile: LoadedDockerfile, host: Host): Promise<string[]> {
  const found = await earlyWarnings(dockerfile, graphOptions(attrs, host), attrs.buildArgs.get(CHECK_CONFIG));
  const warnings = found.map((one) => shownWarning(dockerfile.vertex, one));
  for (const warning of warnings) job.progress.warning(warning);
  return warnings.map(({ short }) => short);
}

/** @param told has the texts of warnings that are not to come again. */
function observerOf({ progress }: BuildJob, told: string[]): BuildObserver {
  return {
    vertex: (vertex) => progress.vertex(vertex),
    status: (status) => progress.status(status),
    log: (...line) => progress.log(...line),
    warning: (warning) => {
      const at = told.indexOf(warning.short);
      if (at < 0) progress.warning(warning);
      else told.splice(at, 1);
    },
    ready: () => progress.ready(),
    classic: () => undefined,
  };
}

function exporterResponse({ job, response }: OrderedBuild, { imageId, isIndex }: BuildResult): Record<string, string> {
  if (imageId === undefined) return Object.fromEntries(response);
  const names = imageNames(job.request).map(({ written }) => written);
  return {
    // An index has no configuration.
    ...(!isIndex && { 'containerimage.config.digest': imageId }),
    'containerimage.digest': imageId,
    ...(names.length > 0 && { 'image.name': names.join(',') }),
    // An image that has left by itself says more.
    ...Object.fromEntries(response),
  };
}

/**
 * Several platforms have members of their own, and a list that tells them.
 * @param documents the configurations of the platforms, in JSON.
 */
function metadataOf({ platforms }: BuildResult, documents: readonly Buffer[]): Record<string, Buffer> {
  const [document, ...others] = documents;
  if (document === undefined) return {};
  if (others.length === 0) return { 'containerimage.config': document };
  const configs = platforms.map(({ platform }, at) => [`containerimage.config/${platform}`, documents[at] ?? document]);
  return { ...platformsMember(platforms.map(({ platform }) => platform)), ...Object.fromEntries(configs) };
}

/** Returns the list of several platforms. */
function platformsMember(platforms: readonly string[]): Record<string, Buffer> {
  if (platforms.length === 1) return {};
  const Platforms = platforms.map((platform) => ({ ID: platform, Platform: platformOf(parsePlatform(platform)) }));
  return { 'refs.platforms': Buffer.from(JSON.stringify({ Platforms })) };
}

function requireEntitlements(entitlements: readonly string[], grantable: readonly string[]): void {
  const refused = entitlements.find((entitlement) => !grantable.includes(entitlement));
  if (refused !== undefined)
    throw internal(`granting entitlement ${refused} is not allowed by build daemon configuration`);
}
