/** The steps that the targets of a build need, and which of them can begin. */
import { type Parts, whole } from '../../../text/turns.js';
import { inputsOf, type PlannedStep } from './step.js';
import type { StepResult } from './step-result.js';

export class Schedule {
  /** All steps, each after those that it needs. */
  readonly steps: readonly PlannedStep[];
  readonly #results = new Map<string, StepResult>();
  readonly #missing = new Map<string, number>();
  readonly #users = new Map<string, PlannedStep[]>();
  #ready: PlannedStep[] = [];

  /** @param targets have the last steps, one for each platform; undefined: there are no files. */
  static *parts(targets: readonly (PlannedStep | undefined)[]): Parts<Schedule> {
    const schedule = new Schedule(yield* orderParts(targets.filter((target) => target !== undefined)));
    for (const step of schedule.steps) {
      schedule.#enter(step);
      yield;
    }
    return schedule;
  }

  private constructor(steps: readonly PlannedStep[]) {
    this.steps = steps;
  }

  #enter(step: PlannedStep): void {
    const inputs = new Set(inputsOf(step).map(({ digest }) => digest));
    this.#missing.set(step.digest, inputs.size);
    if (inputs.size === 0) this.#ready.push(step);
    for (const input of inputs) {
      const users = this.#users.get(input);
      if (users) users.push(step);
      else this.#users.set(input, [step]);
    }
  }

  /** Returns steps that can begin and were not returned before, so many at most, the first ones. */
  take(most: number): readonly PlannedStep[] {
    return this.#ready.splice(0, Math.max(most, 0));
  }

  complete(digest: string, result: StepResult): void {
    this.#results.set(digest, result);
    for (const user of this.#users.get(digest) ?? []) {
      const missing = (this.#missing.get(user.digest) ?? 1) - 1;
      this.#missing.set(user.digest, missing);
      if (missing === 0) this.#ready.push(user);
    }
  }

  /** Returns the result of a step that is complete. */
  resultOf(step: PlannedStep): StepResult {
    const result = this.#results.get(step.digest);
    if (result === undefined) throw new Error(`step ${step.name} has no result`);
    return result;
  }
}

/**
 * Returns all steps that some need, each after its inputs. The walk keeps its own stack, for long chains. Steps with
 * the same digest are one, which has the name of the last one that the walk leaves, as BuildKit's walk over inputs has.
 */
export function inOrder(targets: readonly PlannedStep[]): PlannedStep[] {
  return whole(orderParts(targets));
}

/** The same in parts. */
function* orderParts(targets: readonly PlannedStep[]): Parts<PlannedStep[]> {
  const found = new Map<string, PlannedStep>();
  const entered = new Set<PlannedStep>();
  const stack: { readonly step: PlannedStep; readonly inputs: PlannedStep[] }[] = [];
  const enter = (step: PlannedStep): void => {
    if (entered.has(step)) return;
    entered.add(step);
    stack.push({ step, inputs: inputsOf(step) });
  };
  for (const target of targets) {
    // A step keeps the name that it has for another platform.
    const own = new Set<string>();
    enter(target);
    yield;
    for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
      const input = top.inputs.shift();
      if (input !== undefined) enter(input);
      else {
        const { digest, name } = top.step;
        const twin = found.get(digest);
        if (twin === undefined) own.add(digest);
        if (twin === undefined || own.has(digest)) found.set(digest, twin ? { ...twin, name } : top.step);
        stack.pop();
      }
      yield;
    }
  }
  return [...found.values()];
}
