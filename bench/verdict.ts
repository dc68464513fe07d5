/**
 * When a figure says anything. Rounds are pairs, because a machine that is slow for a minute is slow for both engines
 * then. The middle of the ratios of all pairs lies in an interval between two of them with a probability that follows
 * from their number alone, whatever the noise looks like (the sign test). There is a verdict only where that interval
 * lies on one side of the target.
 */
import { median, type Metric } from './measure.js';

/** The true middle is outside of the interval at most so often. */
const MAX_ERROR = 0.1;
/** With fewer samples no interval is that certain. */
export const MIN_ROUNDS = 5;

export interface Spread {
  readonly middle: number;
  /** Ends of the interval; undefined for fewer samples than an interval needs. */
  readonly interval?: readonly [low: number, high: number];
}

export type Verdict = 'reached' | 'MISSED' | 'not sound';

/** How many of the smallest, and of the largest, samples are outside of the interval; -1 when there is none. */
function outside(count: number): number {
  let probability = 1 / 2 ** count;
  let sum = 0;
  let left = -1;
  for (let index = 0; index < count / 2; index++) {
    sum += probability;
    if (2 * sum > MAX_ERROR) return left;
    left = index;
    probability = (probability * (count - index)) / (index + 1);
  }
  return left;
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const left = outside(sorted.length);
  const [low, high] = [sorted[left], sorted[sorted.length - 1 - left]];
  const middle = median(values);
  return low === undefined || high === undefined || values.some(Number.isNaN)
    ? { middle }
    : { middle, interval: [low, high] };
}

export function verdictOf(
  { interval }: Spread,
  { target, moreIsBetter }: { readonly target: number; readonly moreIsBetter: boolean },
): Verdict {
  if (interval === undefined) return 'not sound';
  const isGood = interval.map((end) => (moreIsBetter ? end >= target : end <= target));
  return isGood.every(Boolean) ? 'reached' : isGood.some(Boolean) ? 'not sound' : 'MISSED';
}

type Samples = Readonly<Record<string, readonly number[]>>;

/** Beside an earlier build, no measure may be worse by more. */
const MAX_GROWTH = 1.05;

/** The target is for engined's value and not for a ratio. */
export function isJudgedAlone(metric: Metric, samples: Samples): boolean {
  return metric.isAbsolute === true && samples['before'] === undefined;
}

export function targetOf({ target, moreIsBetter }: Metric, samples: Samples): number | undefined {
  if (samples['before'] === undefined || target === undefined) return target;
  return moreIsBetter ? 1 / MAX_GROWTH : MAX_GROWTH;
}

/** Returns a metric with the target that it has with a storage driver; undefined: overlay2. */
export function withDriver(metric: Metric, driver: string | undefined): Metric {
  const { targetElsewhere: target } = metric;
  return driver === undefined || driver === 'overlay2' || target === undefined ? metric : { ...metric, target };
}

/** Ratios of all pairs, or engined's values; undefined where one engine ran alone and its value says nothing. */
export function valuesToJudge(metric: Metric, samples: Samples): readonly number[] | undefined {
  const { engined, dockerd, before } = samples;
  if (engined === undefined || isJudgedAlone(metric, samples)) return engined;
  const other = dockerd ?? before;
  return other && engined.map((value, index) => value / (other[index] ?? Number.NaN));
}

/** Orders for so many rounds: at random, but each of two follows the other equally often. */
export function* randomOrders<T>(
  items: readonly T[],
  random: () => number = Math.random,
): Generator<readonly T[], never> {
  for (;;) {
    const first = random() < 0.5 ? items : items.toReversed();
    yield first;
    yield first.toReversed();
  }
}
