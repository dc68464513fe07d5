/** Limits what a Dockerfile may ask a plan to hold: each RUN has all variables of its stage, so the product counts. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Instruction } from '../../../build/dockerfile/ast.js';
import type { StageScope } from '../../../build/dockerfile/scope.js';
import { invalid } from '../../../errors/engine-error.js';

/** Characters of the variables of all RUN together. */
const MAX_CHARACTERS = 1 << 26;
/** After so many instructions others have their turn. */
const TURN = 20;

export class PlanBudget {
  #instructions = 0;
  #characters = 0;

  /** Call it before each instruction. @throws EngineError invalid when there is too much. */
  async spend({ kind }: Instruction, { env }: Pick<StageScope, 'env'>): Promise<void> {
    if (kind === 'RUN') for (const [name, value] of env) this.#characters += name.length + value.length;
    if (this.#characters > MAX_CHARACTERS) throw invalid('the variables of the steps of RUN are too long');
    if (++this.#instructions % TURN === 0) await nextTurn();
  }
}
