/** Finds texts that take a target longer than their length explains. */
import { cook, randomRecipe, type Recipe } from './expensive-text.js';
import { COST_TARGETS, type CostTarget } from './cost-targets.js';
import type { Random } from './random.js';

export interface CostlyCase {
  readonly target: CostTarget;
  readonly recipe: Recipe;
  /** Milliseconds of processor time. */
  readonly ms: number;
}

/** A short text has this length; it only shows whether a longer one is worth trying. */
const SHORT = 600;
/** For each target so many texts are tried at its limit. */
const KEPT = 6;
/** And this part of all, whatever they took. */
const LONG_SHARE = 0.0005;
const HEAVY_SHARE = 0.05;
const TRIES = 3;

/** Runs so many cases, or as many as there is time for, and gives the slowest at their limits, the slowest first. */
export function findCostly(random: Random, cases: number, timeMs: number): CostlyCase[] {
  const end = performance.now() + timeMs;
  const suspects = new Map<CostTarget, CostlyCase[]>(COST_TARGETS.map((target) => [target, []]));
  const costly: CostlyCase[] = [];
  for (let at = 0; at < cases && performance.now() < end; at++) {
    const target = targetOf(random);
    const recipe = randomRecipe(random, target.hints);
    if (random.chance(LONG_SHARE)) costly.push(atLimit(target, recipe));
    else keep(suspects.get(target) ?? [], { target, recipe, ms: time(target, cook(recipe, SHORT)) });
  }
  for (const { target, recipe } of [...suspects.values()].flat()) costly.push(atLimit(target, recipe));
  return costly.toSorted((a, b) => b.ms - a.ms);
}

function targetOf(random: Random): CostTarget {
  for (;;) {
    const target = random.of(COST_TARGETS);
    if (target.isHeavy !== true || random.chance(HEAVY_SHARE)) return target;
  }
}

function keep(list: CostlyCase[], item: CostlyCase): void {
  if (list.length === KEPT && (list.at(-1)?.ms ?? 0) >= item.ms) return;
  list.push(item);
  list.sort((a, b) => b.ms - a.ms);
  list.splice(KEPT);
}

/** The best of several tries, of which a collection of garbage spoils one or two. */
function atLimit(target: CostTarget, recipe: Recipe): CostlyCase {
  const text = cook(recipe, target.limit);
  let ms = Infinity;
  for (let attempt = 0; attempt < TRIES && ms > 20; attempt++) ms = Math.min(ms, time(target, text));
  return { target, recipe, ms };
}

/** Returns milliseconds of processor time: a busy machine lets a process wait for as long as it likes. */
function time(target: CostTarget, text: string): number {
  const start = process.cpuUsage();
  try {
    target.run(text);
  } catch {
    // Most of it is wrong.
  }
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
}
