/** The documents of `--call=outline`, `--call=targets` and `--call=check`, as clients of BuildKit read them. */
import type { Parts } from '../../text/turns.js';
import type { ArgDefinition, Dockerfile, LineRange } from './ast.js';
import type { CheckedStage, CheckResult } from './check.js';
import { DockerfileError } from './dockerfile-error.js';

export interface Location {
  readonly sourceIndex?: number;
  readonly ranges: readonly { readonly start: { readonly line: number }; readonly end: { readonly line: number } }[];
}

export interface OutlineArg {
  readonly name: string;
  readonly description?: string;
  readonly value?: string;
  readonly location: Location;
}

export interface OutlineMount {
  readonly name: string;
  readonly required?: true;
  readonly location: Location;
}

/** Members are left out where they are empty, as Go does. */
export interface Outline {
  readonly name?: string;
  readonly description?: string;
  readonly args?: readonly OutlineArg[];
  readonly secrets?: readonly OutlineMount[];
  readonly ssh?: readonly OutlineMount[];
  readonly sources: readonly string[];
}

export interface TargetsList {
  readonly targets: readonly {
    readonly name?: string;
    readonly default?: true;
    readonly description?: string;
    readonly base?: string;
    readonly platform?: string;
    readonly location: Location;
  }[];
  readonly sources: readonly string[];
}

/** A warning about more lines has one range for all: hundreds of warnings may be about the same million lines. */
const MAX_RANGES = 100;
/** So many ranges has an outline before each of its locations is one: many arguments may be in the same lines. */
const MAX_OUTLINE_RANGES = 10_000;

/** Returns one range for each line, as BuildKit has them. */
export function singleLines({ start, end }: LineRange): LineRange[] {
  if (end - start >= MAX_RANGES) return [{ start, end }];
  return Array.from({ length: Math.max(1, end - start + 1) }, (_, i) => ({ start: start + i, end: start + i }));
}

export function locationOf(lines: LineRange): Location {
  return locationAt(singleLines(lines));
}

function locationAt(ranges: readonly LineRange[]): Location {
  return { ranges: ranges.map(({ start, end }) => ({ start: { line: start }, end: { line: end } })) };
}

/** Makes the locations of one outline. */
class Locations {
  #left = MAX_OUTLINE_RANGES;

  of(lines: LineRange): Location {
    if (this.#left <= 0) return locationAt([lines]);
    const location = locationOf(lines);
    this.#left -= location.ranges.length;
    return location;
  }
}

export function listTargets({ stages, text }: Dockerfile): TargetsList {
  return {
    targets: stages.map(({ name, description, base, platform, lines, index }) => ({
      ...(name !== '' && { name }),
      ...(index === stages.length - 1 && { default: true as const }),
      ...(description !== '' && { description }),
      base,
      ...(platform !== '' && { platform }),
      location: locationOf(lines),
    })),
    sources: [Buffer.from(text).toString('base64')],
  };
}

/** More arguments, or longer values, are no outline that anybody reads. */
const MAX_ARGS = 10_000;
const MAX_CHARACTERS = 1 << 20;

/** Says, in parts, what the target takes from outside. @throws the error of the check; DockerfileError. */
export function* outlineParts(dockerfile: Dockerfile, { graph, stages, error }: CheckResult): Parts<Outline> {
  if (error !== undefined) throw error;
  if (graph === undefined) throw new Error('a check without an error has a graph');
  const target = graph.stages[graph.target]?.stage;
  const used = [...stages.values()];
  const locations = new Locations();
  const args = yield* argsOf(dockerfile, used, graph.globals.declared, locations);
  const secrets = yield* mountsOf(used, 'secret', locations);
  const ssh = yield* mountsOf(used, 'ssh', locations);
  return {
    ...(target?.name && { name: target.name }),
    ...(target?.description && { description: target.description }),
    ...(args.length > 0 && { args }),
    ...(secrets.length > 0 && { secrets }),
    ...(ssh.length > 0 && { ssh }),
    sources: [Buffer.from(dockerfile.text).toString('base64')],
  };
}

type Declared = NonNullable<CheckResult['graph']>['globals']['declared'];

/** The arguments of one outline, each of them once. */
class OutlineArgs {
  readonly #found = new Map<string, OutlineArg>();
  readonly #locations: Locations;
  #characters = 0;

  constructor(locations: Locations) {
    this.#locations = locations;
  }

  has(key: string): boolean {
    return this.#found.has(key);
  }

  /** @throws DockerfileError for more than an outline has. */
  add({ key, value = '', description }: ArgDefinition, lines: LineRange): void {
    const location = this.#locations.of(lines);
    const said = { ...(description !== '' && { description }), ...(value !== '' && { value }) };
    this.#found.set(key, { name: key, ...said, location });
    this.#characters += value.length;
    if (this.#found.size > MAX_ARGS || this.#characters > MAX_CHARACTERS)
      throw new DockerfileError('the target has too many arguments for an outline');
  }

  sorted(): OutlineArg[] {
    return [...this.#found.values()].sort((a, b) => lineOf(a) - lineOf(b));
  }
}

/** The arguments that stages declare with a value of their own, and the global ones that something uses. */
function* argsOf(
  dockerfile: Dockerfile,
  stages: readonly CheckedStage[],
  declared: Declared,
  locations: Locations,
): Parts<OutlineArg[]> {
  const found = new OutlineArgs(locations);
  const needed: string[] = [];
  for (const { index, instructions } of stages) {
    const stage = dockerfile.stages[index];
    if (stage !== undefined) for (const name of variablesIn(`${stage.base} ${stage.platform}`)) needed.push(name);
    const byLine = new Map(stage?.instructions.map((one) => [one.lines.start, one]));
    for (const instruction of instructions) {
      if (instruction.kind !== 'ARG') continue;
      yield;
      const written = byLine.get(instruction.lines.start);
      const defaults = new Map(written?.kind === 'ARG' ? written.args.toReversed().map((arg) => [arg.key, arg]) : []);
      for (const arg of instruction.args) {
        const { key } = arg;
        const isInherited = defaults.has(key) && defaults.get(key)?.value === undefined && declared.has(key);
        if (isInherited) needed.push(key);
        else if (!found.has(key)) found.add(arg, instruction.lines);
      }
    }
  }
  for (let key = needed.pop(); key !== undefined; key = needed.pop()) {
    const arg = declared.get(key);
    if (arg === undefined || found.has(key)) continue;
    found.add(arg, { start: arg.line, end: arg.endLine });
    for (const use of arg.uses) needed.push(use);
  }
  return found.sorted();
}

function variablesIn(text: string): string[] {
  return [...text.matchAll(/\$\{?(\w+)/g)].map(([, name = '']) => name);
}

function* mountsOf(
  stages: readonly CheckedStage[],
  type: 'secret' | 'ssh',
  locations: Locations,
): Parts<OutlineMount[]> {
  const found = new Map<string, OutlineMount>();
  for (const instruction of stages.flatMap(({ instructions }) => instructions)) {
    yield;
    if (instruction.kind !== 'RUN') continue;
    for (const mount of instruction.mounts) {
      if (mount.type !== type) continue;
      const name =
        type === 'ssh' ? mount.id || 'default' : mount.id || mount.source || (mount.target.split('/').at(-1) ?? '');
      if (found.has(name)) continue;
      const location = locations.of(instruction.lines);
      found.set(name, { name, ...(mount.required && { required: true as const }), location });
    }
  }
  return [...found.values()].sort((a, b) => lineOf(a) - lineOf(b));
}

function lineOf({ location }: { readonly location: Location }): number {
  return location.ranges[0]?.start.line ?? 0;
}
