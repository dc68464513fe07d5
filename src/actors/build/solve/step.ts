/** The steps of a build: what each does, and what it begins with. */
import { createHash } from 'node:crypto';
import type { LineRange } from '../../../build/dockerfile/ast.js';
import type { BuildMaterial, BuildRecipe } from '../../../ports/build.js';
import type { Digest } from '../../../ports/storage.js';
import type { StepResult } from './step-result.js';
import type { SolveTools } from './tools.js';

/** An operation works with these. */
export interface StepWork {
  readonly tools: SolveTools;
  readonly step: PlannedStep;
  /** The result of the step before; undefined: it begins with no files. */
  readonly parent: StepResult | undefined;
  /** The results of `step.sources`, in their order. */
  readonly sources: readonly StepResult[];
  readonly signal: AbortSignal;
}

export type Made = Pick<StepResult, 'layer'> & Partial<Pick<StepResult, 'files'>>;

/** The work of a step. Its result depends on its parent, on `identity` and on `content`, and on nothing else. */
export interface Operation {
  readonly identity: unknown;
  /** The name of its record in the cache; absent: that of the step. */
  readonly description?: string;
  /** It makes no files: they are those of an image. */
  readonly isImage?: boolean;
  /** It runs a process: not more of them than the host has processors run at a time. */
  readonly isProcess?: boolean;
  /** Returns what it reads of its sources, for the key of the cache. Absent: its result is not kept there. */
  readonly content?: (work: StepWork) => Promise<unknown>;
  perform(work: StepWork): Promise<Made>;
  /** Tells what it does, for provenance; absent: it is no step of its own there. */
  readonly recipe?: OperationRecipe;
}

export interface OperationRecipe extends Partial<Pick<BuildRecipe, 'secrets' | 'ssh'>> {
  /** In the form of the definitions of BuildKit. */
  readonly operation: object;
  /** The image that it gives; what is fetched is known later. */
  readonly material?: BuildMaterial;
}

export interface PlannedStep {
  /** Names the step in progress messages; the same for a step that does the same with the same inputs. */
  readonly digest: string;
  readonly name: string;
  readonly operation: Operation;
  readonly parent: PlannedStep | undefined;
  readonly sources: readonly PlannedStep[];
  /** Those of the instruction that it is for. */
  readonly lines: LineRange | undefined;
  /** It takes nothing from the cache. */
  readonly isFresh: boolean;
}

export function newStep(step: Omit<PlannedStep, 'digest'>): PlannedStep {
  const digest = vertexDigest(
    step.operation.identity,
    step.isFresh,
    inputsOf(step).map((input) => input.digest),
  );
  return { ...step, digest };
}

export function inputsOf({ parent, sources }: Pick<PlannedStep, 'parent' | 'sources'>): PlannedStep[] {
  return [...new Set([...(parent ? [parent] : []), ...sources])];
}

/** Returns a digest of values that JSON can show. */
export function vertexDigest(...values: readonly unknown[]): Digest {
  return `sha256:${createHash('sha256').update(JSON.stringify(values)).digest('hex')}`;
}
