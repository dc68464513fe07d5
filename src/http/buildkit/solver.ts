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

/** The answer to a frontend. */
export interface Solution extends JobOutcome {
  readonly metadata: Readonly<Record<string, Uint8Array>>;
  /** Names of what was built, for later builds of the same job: one for each platform; absent where nothing was. */
  readonly references?: readonly { readonly platform: string; readonly id: string }[];
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
  /** Builds, and exports what the job's client has asked for. @throws EngineError or ForeignStatus. */
  solve(job: BuildJob, order: SolveOrder): Promise<Solution>;
  usage(filters: readonly string[]): Promise<readonly CacheUsage[]>;
  /** Resolves with what has been removed. */
  prune(order: PruneOrder): Promise<readonly CacheUsage[]>;
}
