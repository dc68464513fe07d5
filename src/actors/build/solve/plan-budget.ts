/**
 * Limits what a Dockerfile may ask a plan to hold: each RUN has all variables of its stage, and each stage that adds a
 * label has all labels of its base, so the product counts.
 */
import type { Instruction } from '../../../build/dockerfile/ast.js';
import { PortBudget } from '../../../build/dockerfile/ports.js';
import type { StageScope } from '../../../build/dockerfile/scope.js';
import { invalid } from '../../../errors/engine-error.js';

/** Characters of the variables of all RUN together. */
const MAX_CHARACTERS = 1 << 26;
/** Labels, ports and volumes that stages have from those that they are based on, of all stages together. */
const MAX_INHERITED = 1 << 20;
/** Sources of ADD that are fetched: all begin at once. */
const MAX_FETCHED = 1000;

export class PlanBudget {
  readonly ports = new PortBudget();
  #characters = 0;
  #inherited = 0;
  #fetched = 0;

  /** Call it before each instruction. @throws EngineError invalid when there is too much. */
  spend({ kind }: Instruction, { characters }: Pick<StageScope, 'characters'>): void {
    if (kind === 'RUN') this.#characters += characters;
    if (this.#characters > MAX_CHARACTERS) throw invalid('the variables of the steps of RUN are too long');
  }

  /** Notes that an instruction fetches so many sources. @throws EngineError invalid when there are too many. */
  fetch(count: number): void {
    this.#fetched += count;
    if (this.#fetched > MAX_FETCHED) throw invalid(`ADD has more than ${MAX_FETCHED} sources that are to be fetched`);
  }

  /** Notes that a stage has copied members of its base. @throws EngineError invalid when there is too much. */
  copy(count: number): void {
    this.#inherited += count;
    if (this.#inherited > MAX_INHERITED) throw invalid('the stages have too many labels, ports and volumes');
  }
}
