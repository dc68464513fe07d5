/** Plans the instructions of one stage, one after the other. */
import type {
  AddInstruction,
  CopyInstruction,
  Instruction,
  RunInstruction,
  WorkdirInstruction,
} from '../../../build/dockerfile/ast.js';
import { environmentOf, type StageScope } from '../../../build/dockerfile/scope.js';
import type { BuildRequest } from '../../../ports/build.js';
import type { Parts } from '../../../text/turns.js';
import { absolutePath } from '../copy-step.js';
import { stepNetwork } from '../run/entitlements.js';
import { checkRun } from '../run/run-checks.js';
import { shellOf, type StageState } from '../stage-state.js';
import { inlineStep } from './contexts.js';
import { blamed } from './failure.js';
import { type CopiedPaths, copyOperation } from './copy.js';
import { GrowingConfig, isGrowing } from './growing-config.js';
import { copyText, runText, workdirText } from './history-text.js';
import type { PlanBudget } from './plan-budget.js';
import { isRemote, remoteSource } from './remote.js';
import { runOperation } from './run.js';
import { runWords } from './run-words.js';
import { configured, emptyEntry, isConfig, layerEntry, type PlannedHistory, type StagePlan } from './stage-plan.js';
import { newStep, type Operation, type PlannedStep } from './step.js';
import type { StepCounter, StepNames } from './step-names.js';
import { workdirOperation } from './workdir.js';

export interface StagePlannerInput {
  readonly request: BuildRequest;
  readonly names: StepNames;
  readonly counter: StepCounter;
  readonly scope: StageScope;
  readonly state: StageState;
  readonly last: PlannedStep | undefined;
  readonly history: readonly PlannedHistory[];
  readonly isFresh: boolean;
  /** Returns the step that brings these paths of the main context. */
  readonly context: (paths: readonly string[]) => PlannedStep;
  readonly budget: PlanBudget;
  /** Gets the names of arguments that are used. */
  readonly usedArgs: Set<string>;
}

/** Facts about an instruction besides its words. */
export interface InstructionFacts {
  /** The sources of `--from`, and of each mount; `none` has no files. */
  readonly sources: readonly (PlannedStep | 'none' | undefined)[];
  /** It is a trigger of the base. */
  readonly isTrigger: boolean;
}

/** A step that is about to be added. */
interface NewStep {
  readonly instruction: Instruction;
  readonly name: string;
  readonly operation: Operation;
  readonly sources: readonly PlannedStep[];
  readonly text: string;
}

export class StagePlanner {
  #state: StageState;
  #last: PlannedStep | undefined;
  readonly #history: PlannedHistory[];
  readonly #growing: GrowingConfig;

  constructor(private readonly input: StagePlannerInput) {
    this.#state = input.state;
    this.#last = input.last;
    this.#history = [...input.history];
    this.#growing = new GrowingConfig(input.state.config, input.budget);
  }

  *plan(): Parts<StagePlan> {
    const { scope } = this.input;
    const state = { ...this.#state, config: yield* this.#growing.into(this.#state.config, scope) };
    return { state, scope, last: this.#last, history: this.#history };
  }

  /** @param instruction as the scope of the stage has expanded it. @throws EngineError with its lines. */
  *add(instruction: Instruction, facts: InstructionFacts): Parts<void> {
    if (instruction.kind === 'ARG') for (const { key } of instruction.args) this.input.usedArgs.add(key);
    if (isGrowing(instruction)) {
      const text = yield* this.#growing.take(instruction);
      if (text !== '') this.#history.push(emptyEntry(text));
    } else if (isConfig(instruction)) {
      const { state, entries } = configured(this.#state, instruction);
      this.#state = state;
      this.#history.push(...entries);
    } else if (instruction.kind === 'RUN') this.#run(instruction, facts);
    else if (instruction.kind === 'WORKDIR') this.#workdir(instruction, facts);
    else yield* this.#copy(instruction, facts);
  }

  #addStep({ instruction, name, operation, sources, text }: NewStep): void {
    const { isFresh } = this.input;
    this.#last = newStep({ name, operation, parent: this.#last, sources, lines: instruction.lines, isFresh });
    this.#history.push(layerEntry(text, this.#last));
  }

  #nameOf(
    instruction: Instruction,
    { isTrigger }: InstructionFacts,
    secrets = new Set<string>(),
    summary = '',
  ): string {
    const { counter, names, scope } = this.input;
    const shown = names.instruction(instruction, environmentOf(scope.env), secrets, summary);
    return `${counter.next()}${isTrigger ? 'ONBUILD ' : ''}${shown}`;
  }

  #workdir(instruction: WorkdirInstruction, facts: InstructionFacts): void {
    // An absolute path is in the image as it is written.
    const isAbsolute = instruction.path.startsWith('/');
    const path = isAbsolute ? instruction.path : absolutePath(this.#state, instruction.path);
    this.#state = { ...this.#state, config: { ...this.#state.config, WorkingDir: path } };
    const text = workdirText(path);
    if (path === '/') {
      this.#history.push(emptyEntry(text));
      return;
    }
    const operation = workdirOperation(this.#state, path);
    this.#addStep({ instruction, name: this.#nameOf(instruction, facts), operation, sources: [], text });
  }

  #run(instruction: RunInstruction, facts: InstructionFacts): void {
    const { scope, context, request } = this.input;
    const { lines } = instruction;
    try {
      checkRun(instruction, request.run, this.#state.config.WorkingDir ?? '');
    } catch (error) {
      throw blamed(error, { lines });
    }
    const words = runWords(instruction);
    const [line = ''] = words.args;
    const argv = instruction.command.isShellForm ? [...shellOf(this.#state.config), line] : words.args;
    const sources: PlannedStep[] = [];
    const mountSources = instruction.mounts.map((mount, at) => {
      let source = facts.sources[at];
      if (source === undefined && mount.type === 'bind') source = context([mount.source]);
      if (source === undefined || source === 'none') return source;
      sources.push(source);
      return sources.length - 1;
    });
    const secrets = new Set(instruction.mounts.flatMap(({ type, env }) => (type === 'secret' && env ? [env] : [])));
    const env = scope.entries();
    const network = stepNetwork(instruction, request.run);
    const operation = runOperation({ instruction, state: this.#state, network, words, argv, env, mountSources });
    const name = this.#nameOf(instruction, facts, secrets, words.summary);
    this.#addStep({ instruction, name, operation, sources, text: runText(argv, scope) });
  }

  *#copy(instruction: AddInstruction | CopyInstruction, facts: InstructionFacts): Parts<void> {
    const sources: PlannedStep[] = [];
    const copied: CopiedPaths[] = [];
    const add = (step: PlannedStep | 'none', paths: readonly string[]): void => {
      if (step !== 'none') sources.push(step);
      copied.push({ source: step === 'none' ? undefined : sources.length - 1, paths });
    };
    const name = this.#nameOf(instruction, facts);
    const [from] = facts.sources;
    const [local, remote]: [string[], string[]] = [[], []];
    for (const path of instruction.sources) (instruction.kind === 'ADD' && isRemote(path) ? remote : local).push(path);
    if (local.length > 0) add(from ?? this.input.context(local), local);
    this.input.budget.fetch(remote.length);
    for (const url of remote) {
      if (instruction.kind !== 'ADD') break;
      const { step, paths } = remoteSource(url, instruction, name);
      yield;
      sources.push(step);
      copied.push({ source: sources.length - 1, paths, isRemote: true });
    }
    if (instruction.inlineFiles.length > 0)
      add(
        inlineStep(instruction.inlineFiles),
        instruction.inlineFiles.map(({ name }) => name),
      );
    const operation = copyOperation(instruction, this.#state, copied);
    this.#addStep({ instruction, name, operation, sources, text: copyText(instruction) });
  }
}
