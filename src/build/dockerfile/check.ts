/**
 * Goes through a Dockerfile as a build does, without running anything: for `docker build --check`, for the warnings of
 * a build, and for `--call=outline`.
 */
import { type Parts, whole } from '../../text/turns.js';
import type { Dockerfile, Instruction, LineRange } from './ast.js';
import { type CheckConfig, Checks, type CheckWarning, parseCheckConfig } from './checks.js';
import { atLines, DockerfileError, partsAtLines } from './dockerfile-error.js';
import { baseObserver, checkDefaults, checkPlatformOf, checkWords } from './from-checks.js';
import type { IgnoreMatcher } from './ignore-file.js';
import { InstructionChecks } from './instruction-checks.js';
import type { Platform } from './platform.js';
import { StageScope } from './scope.js';
import { type GraphOptions, type ResolvedStage, StageGraph, type StageSource, defaultArgs } from './stage-graph.js';
import { firstOptions, nearest } from './suggest.js';

/** The configuration of a base image says these. */
export interface ImageFacts {
  readonly env: readonly (readonly [key: string, value: string])[];
  readonly hasShell: boolean;
  /** The directory in which steps begin; empty is the root. */
  readonly workdir: string;
  readonly platform?: Platform | undefined;
  readonly triggers: readonly string[];
}

export interface CheckOptions extends Omit<GraphOptions, 'observer'> {
  /**
   * Asked for the bases of stages, and for the images that files are taken from, whose facts do not matter. undefined:
   * the image is not known, and nothing is said about it. A DockerfileError says that it cannot be had.
   */
  readonly image: (source: StageSource, stage: ResolvedStage) => ImageFacts | undefined;
  /** Without a target, all stages are looked at, and not only those that the last one needs. */
  readonly allStages: boolean;
  /** The ignore file of the main context, for the rule that is about it. */
  readonly ignore?: IgnoreMatcher | undefined;
  /** Goes before what the Dockerfile says. */
  readonly config?: CheckConfig | undefined;
}

/** One stage after all of its instructions. */
export interface CheckedStage {
  readonly index: number;
  readonly scope: StageScope;
  /** With their variables replaced. */
  readonly instructions: readonly Instruction[];
}

export interface CheckResult {
  readonly warnings: readonly CheckWarning[];
  /** The first thing that stops a build; what stands behind it has not been looked at. */
  readonly error: DockerfileError | undefined;
  readonly graph: StageGraph | undefined;
  readonly stages: ReadonlyMap<number, CheckedStage>;
}

export function checkDockerfile(dockerfile: Dockerfile, options: CheckOptions): CheckResult {
  return whole(checkParts(dockerfile, options));
}

/** The same in parts. */
export function* checkParts(dockerfile: Dockerfile, options: CheckOptions): Parts<CheckResult> {
  const stages = new Map<number, CheckedStage>();
  let checks = new Checks({ skip: 'all', experimental: new Set(), isError: false });
  let graph: StageGraph | undefined;
  try {
    const config = options.config ?? parseCheckConfig(checkDirective(dockerfile));
    checks = new Checks(config);
    graph = yield* walk(dockerfile, options, checks, stages);
    checks.throwIfErrors();
    return { warnings: checks.warnings, error: undefined, graph, stages };
  } catch (error) {
    if (!(error instanceof DockerfileError)) throw error;
    return { warnings: checks.warnings, error, graph, stages };
  }
}

/** The value up to the first blank counts, as for the other directives. */
function checkDirective({ directives }: Dockerfile): string {
  return directives.check?.value.split(' ', 1)[0] ?? '';
}

function* walk(
  dockerfile: Dockerfile,
  options: CheckOptions,
  checks: Checks,
  stages: Map<number, CheckedStage>,
): Parts<StageGraph> {
  yield* checkWords(dockerfile, checks);
  yield* checkDefaults(dockerfile, defaultArgs(dockerfile, options), checks);
  const graph = yield* StageGraph.parts(dockerfile, { ...options, observer: baseObserver(checks, options.host) });
  yield;
  for (const index of chosen(graph, options)) {
    const facts = factsOf(graph, index, options);
    yield* graph.addTriggers(index, [...(facts?.triggers ?? []), ...graph.stageTriggers(index)]);
  }
  yield;
  const indexes = chosen(graph, options);
  for (const index of indexes) {
    yield;
    lookUpSources(graph.stages[index], options);
  }
  const all = new Map<number, InstructionChecks>();
  for (const index of indexes) {
    const stage = graph.stages[index];
    if (stage === undefined) continue;
    const facts = factsOf(graph, index, options);
    if (facts?.platform !== undefined) checkPlatformOf(stage, facts.platform, options.targetPlatform, checks);
    yield;
    graph.refuseForwardReferences([index]);
    yield;
    const base = stage.base.kind === 'stage' ? stage.base.index : -1;
    const begin = { imageEnv: facts?.env ?? [], stage: stages.get(base)?.scope };
    const made = StageScope.parts(begin, graph.globals, options.buildArgs, graph.expander);
    const scope = yield* partsAtLines(stage.stage.lines, made);
    const rules = new InstructionChecks(checks, options.ignore, all.get(base), facts);
    all.set(index, rules);
    const instructions: Instruction[] = [];
    stages.set(index, { index, scope, instructions });
    if (stage.isReplaced) continue;
    for (const next of stage.instructions) instructions.push(yield* step(next, scope, rules, checks));
  }
  return graph;
}

function* step(next: Instruction, scope: StageScope, rules: InstructionChecks, checks: Checks): Parts<Instruction> {
  const found: { readonly names: ReadonlySet<string>; readonly known: readonly string[] }[] = [];
  try {
    const expanded = yield* scope.next(next, (names) => {
      // The instruction itself may add variables, of which this word knows nothing.
      if (!checks.isFull) found.push({ names, known: firstOptions(scope.env.keys()) });
    });
    rules.see(expanded);
    return expanded;
  } finally {
    for (const { names, known } of found) {
      for (const name of names) {
        if (checks.isFull) break;
        reportUndefined(name, known, next.lines, checks);
        yield;
      }
    }
    yield;
  }
}

function reportUndefined(name: string, known: Iterable<string>, lines: LineRange, checks: Checks): void {
  const match = nearest(name, known, true);
  const suggestion = match === '' ? '' : ` (did you mean $${match}?)`;
  checks.report('UndefinedVar', lines, `Usage of undefined variable '$${name}'${suggestion}`);
}

function chosen(graph: StageGraph, options: CheckOptions): number[] {
  return options.allStages && options.target === '' ? [...graph.stages.keys()] : graph.reachable();
}

function factsOf(graph: StageGraph, index: number, options: CheckOptions): ImageFacts | undefined {
  const stage = graph.stages[index];
  if (stage === undefined || stage.base.kind === 'stage' || stage.base.kind === 'scratch') return undefined;
  const { base } = stage;
  return atLines(stage.stage.lines, () => options.image(base, stage));
}

function lookUpSources(stage: ResolvedStage | undefined, options: CheckOptions): void {
  for (const [{ lines }, sources] of stage?.sources ?? [])
    for (const source of sources)
      if (stage !== undefined && source?.kind === 'image') atLines(lines, () => options.image(source, stage));
}
