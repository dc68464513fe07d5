/** The documents of `--call=outline`, `--call=targets` and `--call=check`, as clients of BuildKit read them. */
import type { Dockerfile, LineRange } from './ast.js';
import type { CheckedStage, CheckResult } from './check.js';

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

/** A warning about more lines has one range for all: a thousand warnings may be about the same million lines. */
const MAX_RANGES = 1000;

/** Returns one range for each line, as BuildKit has them. */
export function singleLines({ start, end }: LineRange): LineRange[] {
  if (end - start >= MAX_RANGES) return [{ start, end }];
  return Array.from({ length: Math.max(1, end - start + 1) }, (_, i) => ({ start: start + i, end: start + i }));
}

export function locationOf(lines: LineRange): Location {
  return {
    ranges: singleLines(lines).map(({ start, end }) => ({ start: { line: start }, end: { line: end } })),
  };
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

/** Says what the target takes from outside. @throws the error of the check. */
export function outlineOf(dockerfile: Dockerfile, { graph, stages, error }: CheckResult): Outline {
  if (error !== undefined) throw error;
  if (graph === undefined) throw new Error('a check without an error has a graph');
  const target = graph.stages[graph.target]?.stage;
  const used = [...stages.values()];
  const args = argsOf(dockerfile, used, graph.globals.declared);
  const secrets = mountsOf(used, 'secret');
  const ssh = mountsOf(used, 'ssh');
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

/** The arguments that stages declare with a value of their own, and the global ones that something uses. */
function argsOf(dockerfile: Dockerfile, stages: readonly CheckedStage[], declared: Declared): OutlineArg[] {
  const found = new Map<string, OutlineArg>();
  const needed: string[] = [];
  for (const { index, instructions } of stages) {
    const stage = dockerfile.stages[index];
    if (stage !== undefined) needed.push(...variablesIn(`${stage.base} ${stage.platform}`));
    const byLine = new Map(stage?.instructions.map((one) => [one.lines.start, one]));
    for (const instruction of instructions) {
      if (instruction.kind !== 'ARG') continue;
      const written = byLine.get(instruction.lines.start);
      for (const { key, value, description } of instruction.args) {
        const isInherited =
          written?.kind === 'ARG' &&
          written.args.find((arg) => arg.key === key)?.value === undefined &&
          declared.has(key);
        if (isInherited) needed.push(key);
        else if (!found.has(key)) found.set(key, argOf(key, value ?? '', description, instruction.lines));
      }
    }
  }
  for (let key = needed.pop(); key !== undefined; key = needed.pop()) {
    const arg = declared.get(key);
    if (arg === undefined || found.has(key)) continue;
    found.set(key, argOf(key, arg.value, arg.description, { start: arg.line, end: arg.endLine }));
    needed.push(...arg.uses);
  }
  return [...found.values()].sort((a, b) => lineOf(a) - lineOf(b));
}

function argOf(name: string, value: string, description: string, lines: LineRange): OutlineArg {
  return {
    name,
    ...(description !== '' && { description }),
    ...(value !== '' && { value }),
    location: locationOf(lines),
  };
}

function variablesIn(text: string): string[] {
  return [...text.matchAll(/\$\{?(\w+)/g)].map(([, name = '']) => name);
}

function mountsOf(stages: readonly CheckedStage[], type: 'secret' | 'ssh'): OutlineMount[] {
  const found = new Map<string, OutlineMount>();
  for (const instruction of stages.flatMap(({ instructions }) => instructions)) {
    if (instruction.kind !== 'RUN') continue;
    for (const mount of instruction.mounts) {
      if (mount.type !== type) continue;
      const name =
        type === 'ssh' ? mount.id || 'default' : mount.id || mount.source || (mount.target.split('/').at(-1) ?? '');
      if (found.has(name)) continue;
      const location = locationOf(instruction.lines);
      found.set(name, { name, ...(mount.required && { required: true as const }), location });
    }
  }
  return [...found.values()].sort((a, b) => lineOf(a) - lineOf(b));
}

function lineOf({ location }: { readonly location: Location }): number {
  return location.ranges[0]?.start.line ?? 0;
}
