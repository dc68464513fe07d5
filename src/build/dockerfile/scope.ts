/** The variables of a build: global arguments, and what ARG and ENV of a stage make of them. */
import { type Parts, whole } from '../../text/turns.js';
import type { ArgInstruction, Dockerfile, Instruction } from './ast.js';
import { atLines, partsAtLines } from './dockerfile-error.js';
import type { InstructionExpander } from './expand-instruction.js';
import { formatPlatform, type Platform } from './platform.js';
import type { Environment, UnmatchedObserver } from './shell-lexer.js';

/** undefined: the argument is mentioned without a value. */
export type BuildArgs = ReadonlyMap<string, string | undefined>;

export interface BuildPlatforms {
  readonly build: Platform;
  readonly target: Platform;
}

export interface ArgValue {
  readonly key: string;
  readonly value: string | undefined;
}

/** These are arguments for the builder itself, and no variables of RUN. */
const NOT_IN_ENVIRONMENT: ReadonlySet<string> = new Set(['BUILDKIT_SBOM_SCAN_CONTEXT', 'BUILDKIT_SBOM_SCAN_STAGE']);

const PROXIES: ReadonlySet<string> = new Set(['http_proxy', 'https_proxy', 'ftp_proxy', 'no_proxy', 'all_proxy']);

/** True for `HTTP_PROXY` and its like: RUN gets them without an ARG, and no record of the image shows them. */
export function isProxyArg(name: string): boolean {
  return PROXIES.has(name.toLowerCase());
}

/** The arguments that every build has, for FROM, and for stages that declare them. */
export function platformArgs({ build, target }: BuildPlatforms, stage: string): Map<string, string> {
  return new Map([
    ['BUILDPLATFORM', formatPlatform(build, false)],
    ['BUILDOS', build.os],
    ['BUILDOSVERSION', build.osVersion],
    ['BUILDARCH', build.architecture],
    ['BUILDVARIANT', build.variant],
    ['TARGETPLATFORM', formatPlatform(target)],
    ['TARGETOS', target.os],
    ['TARGETOSVERSION', target.osVersion],
    ['TARGETARCH', target.architecture],
    ['TARGETVARIANT', target.variant],
    ['TARGETSTAGE', stage || 'default'],
  ]);
}

/** A global argument, for the outline. */
export interface GlobalArg {
  readonly key: string;
  readonly value: string;
  readonly description: string;
  readonly line: number;
  readonly endLine: number;
  /** The variables that its default has used. */
  readonly uses: readonly string[];
}

export interface GlobalScope {
  /** FROM sees these, and an ARG without a default inherits them. */
  readonly values: ReadonlyMap<string, string>;
  /** The ARGs before the first FROM. */
  readonly declared: ReadonlyMap<string, GlobalArg>;
}

/** @throws DockerfileError with lines. */
export function* globalScope(
  dockerfile: Dockerfile,
  defaults: ReadonlyMap<string, string>,
  buildArgs: BuildArgs,
  expander: InstructionExpander,
): Parts<GlobalScope> {
  const values = new Map(defaults);
  for (const key of defaults.keys()) {
    const override = buildArgs.get(key);
    if (override !== undefined) values.set(key, override);
  }
  const declared = new Map<string, GlobalArg>();
  for (const { args, lines } of dockerfile.globalArgs) {
    yield;
    for (const { key, value: written, description } of args) {
      let value = buildArgs.get(key);
      let uses: string[] = [];
      if (value === undefined && written !== undefined && !buildArgs.has(key)) {
        const processed = atLines(lines, () => expander.matches(written, environmentOf(values)));
        value = processed.result;
        uses = [...processed.matched].filter((name) => name !== key);
      }
      if (value !== undefined) values.set(key, value);
      declared.set(key, { key, value: value ?? '', description, line: lines.start, endLine: lines.end, uses });
    }
  }
  return { values, declared };
}

export function environmentOf(values: ReadonlyMap<string, string>): Environment {
  return { get: (name) => values.get(name) };
}

/** A stage begins with the configuration of its image, or with the end of the stage that it is based on. */
export interface StageBase {
  /** The variables in the image's configuration. PATH gets a default. */
  readonly imageEnv: readonly (readonly [key: string, value: string])[];
  /** The stage before, whose arguments are still there. */
  readonly stage?: StageScope | undefined;
}

export const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** So many variables are taken over together. */
const VARIABLES = 1000;

/** The variables of one stage while its instructions run in order. */
export class StageScope {
  /** Words are expanded with these: ENV and ARG. */
  readonly env = new Map<string, string>();
  /** The configuration of the image will have these: ENV only. */
  readonly imageEnv = new Map<string, string>();
  /** The arguments in the order of their declaration, for RUN and its record. A name may be there twice. */
  readonly args: ArgValue[] = [];
  readonly #declared = new Set<string>();
  #characters = 0;
  /** For the steps of RUN, which share these texts: made for the first one, and kept as the variables change. */
  #entries: Map<string, string> | undefined;
  #list: readonly string[] | undefined;
  #shownArgs: Map<string, string> | undefined;
  #shown: string | undefined;

  private constructor(
    private readonly globals: GlobalScope,
    private readonly buildArgs: BuildArgs,
    private readonly expander: InstructionExpander,
  ) {}

  /** @throws DockerfileError without lines when the stages of this expander take over too much. */
  static of(...input: Parameters<typeof StageScope.parts>): StageScope {
    return whole(StageScope.parts(...input));
  }

  /** The same in parts. */
  static *parts(
    base: StageBase,
    globals: GlobalScope,
    buildArgs: BuildArgs,
    expander: InstructionExpander,
  ): Parts<StageScope> {
    const scope = new StageScope(globals, buildArgs, expander);
    yield* scope.#takeOver(base);
    return scope;
  }

  *#takeOver({ imageEnv, stage }: StageBase): Parts<void> {
    if (stage !== undefined) this.expander.inherit(stage.env.size + stage.args.length);
    let count = 0;
    for (const [key, value] of stage?.imageEnv ?? imageEnv) {
      this.imageEnv.set(key, value);
      if (++count % VARIABLES === 0) yield;
    }
    if (!this.imageEnv.has('PATH')) this.imageEnv.set('PATH', DEFAULT_PATH);
    for (const variables of [stage?.env ?? [], this.imageEnv]) {
      for (const [key, value] of variables) {
        this.#set(key, value);
        if (++count % VARIABLES === 0) yield;
      }
    }
    for (const arg of stage?.args ?? []) {
      this.args.push(arg);
      this.#declared.add(arg.key);
      if (++count % VARIABLES === 0) yield;
    }
  }

  /** Length of the names and values of all variables. */
  get characters(): number {
    return this.#characters;
  }

  /** Returns `NAME=value` of each variable: the same list as long as none changes. */
  entries(): readonly string[] {
    this.#entries ??= new Map([...this.env].map(([key, value]) => [key, `${key}=${value}`]));
    this.#list ??= [...this.#entries.values()];
    return this.#list;
  }

  /**
   * Returns the arguments as the history tells them of a RUN, `|2 A=1 B=2`: the last value of each, in the order of the
   * first. Empty when there are none. It is the same text as long as none changes.
   */
  shownArgs(): string {
    if (this.#shownArgs === undefined) {
      this.#shownArgs = new Map();
      for (const { key, value } of this.args) this.#shownArgs.set(key, this.#shownArg(key, value));
    }
    const { size } = this.#shownArgs;
    this.#shown ??= size === 0 ? '' : `|${size} ${[...this.#shownArgs.values()].join(' ')}`;
    return this.#shown;
  }

  #shownArg(key: string, value: string | undefined): string {
    return `${key}=${this.env.get(key) ?? value ?? ''}`;
  }

  #set(key: string, value: string): void {
    const before = this.env.get(key);
    this.#characters += value.length - (before?.length ?? -key.length);
    this.env.set(key, value);
    this.#entries?.set(key, `${key}=${value}`);
    this.#list = undefined;
    if (this.#shownArgs?.has(key)) this.#show(key, undefined);
  }

  #show(key: string, value: string | undefined): void {
    this.#shownArgs?.set(key, this.#shownArg(key, value));
    this.#shown = undefined;
  }

  /** Returns the value that an argument has in the stage, or else before the first one. */
  argument(name: string): string | undefined {
    return (
      this.args.findLast(({ key, value }) => key === name && value !== undefined)?.value ??
      this.globals.values.get(name)
    );
  }

  /**
   * Replaces the variables of the next instruction, and takes over what it says about variables itself. The ARGs of the
   * result have the values that count.
   * @param observer hears of variables that nothing has declared, once for each word.
   * @throws DockerfileError with the lines of the instruction.
   */
  *next(instruction: Instruction, observer?: UnmatchedObserver): Parts<Instruction> {
    const report: UnmatchedObserver = (names) => this.#report(names, observer);
    const expanded = yield* partsAtLines(
      instruction.lines,
      instruction.kind === 'ARG'
        ? this.#declare(instruction, report)
        : this.expander.expand(instruction, environmentOf(this.env), report),
    );
    if (expanded.kind === 'ENV') {
      for (const { key, value } of expanded.pairs) {
        this.#set(key, value);
        this.imageEnv.set(key, value);
      }
    }
    return expanded;
  }

  *#declare(instruction: ArgInstruction, report: UnmatchedObserver): Parts<ArgInstruction> {
    const args: ArgInstruction['args'][number][] = [];
    for (const arg of instruction.args) {
      yield;
      let value = this.buildArgs.get(arg.key);
      if (value === undefined && !this.buildArgs.has(arg.key)) {
        value =
          arg.value === undefined
            ? this.globals.values.get(arg.key)
            : this.expander.matches(arg.value, environmentOf(this.env), report).result;
      }
      if (value !== undefined && !NOT_IN_ENVIRONMENT.has(arg.key)) this.#set(arg.key, value);
      this.args.push({ key: arg.key, value });
      this.#show(arg.key, value);
      this.#declared.add(arg.key);
      args.push({ ...arg, value });
    }
    return { ...instruction, args };
  }

  /** A declared argument without a value is not undefined. */
  #report(names: ReadonlySet<string>, observer: UnmatchedObserver | undefined): void {
    if (observer === undefined) return;
    const undefinedNames = [...names].filter((name) => !NOT_IN_ENVIRONMENT.has(name) && !this.#declared.has(name));
    if (undefinedNames.length > 0) observer(new Set(undefinedNames));
  }
}
