/** A solver stands between the messages of this door and the build engine. */
import type { BuildJob, JobOutcome } from './build-jobs.js';
import type { CacheUsage } from '../../ports/build.js';
import type { CacheOptionsEntry, Definition } from './proto/gen/common_pb.js';

/** A frontend's request to solve something. */
export interface SolveOrder {
  readonly frontend: string;
  readonly attrs: ReadonlyMap<string, string>;
  readonly inputs: ReadonlyMap<string, Definition>;
  /** Caches to use. */
  readonly cacheImports: readonly CacheOptionsEntry[];
}

/** The name of what is built for one platform, for later builds of the same job. */
export interface BuiltReference {
  readonly platform: string;
  readonly id: string;
}

/** The answer to a frontend. */
export interface FrontendAnswer {
  readonly metadata: Readonly<Record<string, Uint8Array>>;
  /** One for each platform; absent where nothing is built. */
  readonly references?: readonly BuiltReference[];
}

/** All that is told of a build that has ended. */
export interface Solution extends JobOutcome, FrontendAnswer {}

export interface Solving {
  /** Resolves when it is known what is built: as in BuildKit, a frontend does not wait for the steps. */
  readonly answer: Promise<FrontendAnswer>;
  /** Both reject for what is found out before. */
  readonly solution: Promise<Solution>;
}

export interface PruneOrder {
  /** A record is meant when it fits one of them. */
  readonly filters: readonly string[];
  readonly all: boolean;
  readonly keepMs: number;
  readonly reservedBytes: number;
  readonly maxUsedBytes: number;
  readonly minFreeBytes: number;
}

export interface Solver {
  /** Builds, and exports what the job's client has asked for. Rejects with EngineError or ForeignStatus. */
  solve(job: BuildJob, order: SolveOrder): Solving;
  usage(filters: readonly string[]): Promise<readonly CacheUsage[]>;
  /** Resolves with what has been removed. */
  prune(order: PruneOrder): Promise<readonly CacheUsage[]>;
}
