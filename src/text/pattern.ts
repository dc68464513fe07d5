/**
 * Compiles regular expressions that others wrote: clients use them in filters and log options. They run on an automaton
 * with the syntax of RE2, which clients of the API expect, in a time that grows with the text and never explodes. This
 * is the only module in which a string becomes a regular expression.
 */
import { RE2JS } from 're2js';
import { messageOf } from '../errors/engine-error.js';
import type { WorkBudget } from './work-budget.js';

const MAX_PATTERN_LENGTH = 1000;
/**
 * The automaton may have so many instructions, because repetitions such as `((a{10}){10}){10}` are written out in it.
 */
const MAX_PROGRAM_SIZE = 1000;
/** Steps that compiling costs, whatever the pattern is, and for each of its characters. */
const COMPILE_STEPS = 2000;
const COMPILE_STEPS_PER_CHARACTER = 200;
const PLAIN = /^[^\\^$.|?*+()[\]{}]*$/;

/** A pattern that is no regular expression, or one that is too long to be tried. */
export class PatternError extends Error {}

/** Finds out whether a text contains a match. */
export type Pattern = (text: string) => boolean;

/** Throws PatternError. Throws invalid when the budget is used up, by this call or by a later call of the result. */
export function compilePattern(text: string, budget: WorkBudget): Pattern {
  if (PLAIN.test(text)) return (subject) => subject.includes(text);
  if (text.length > MAX_PATTERN_LENGTH) throw new PatternError(`longer than ${MAX_PATTERN_LENGTH} characters`);
  budget.spend(COMPILE_STEPS + COMPILE_STEPS_PER_CHARACTER * text.length);
  const expression = parse(text);
  const size = expression.programSize();
  if (size > MAX_PROGRAM_SIZE) throw new PatternError('expression too large');
  return (subject) => {
    budget.spend(size * (subject.length + 1));
    return expression.test(subject);
  };
}

function parse(text: string): RE2JS {
  try {
    return RE2JS.compile(text);
  } catch (error) {
    throw new PatternError(messageOf(error));
  }
}
