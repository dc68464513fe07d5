/** The form of a measure. Each has a file of its own; run.ts puts them together. */
import type { Engine } from '../test/support/engine.js';
import type { Shape } from './images.js';
import { warmMemory } from './warm-memory.js';

export interface Metric {
  readonly name: string;
  readonly unit: 'req/s' | 'ms' | 'MB/s' | 'MiB' | 'descriptors' | 'times' | 'probes';
  /**
   * Wanted value of engined divided by dockerd's: at least it where more is better, at most it where less is. Without
   * it the figure is only shown.
   */
  readonly target?: number;
  /** The target with another storage driver than overlay2, where it is another one. */
  readonly targetElsewhere?: number;
  readonly moreIsBetter: boolean;
  /** The target is for engined's value itself. */
  readonly isAbsolute?: boolean;
}

/** One value for each metric of the measure. */
export type Sample = Readonly<Record<string, number>>;

export interface Setting {
  /** `host:port/name:tag` of a busybox image; the engine has pulled it. */
  readonly image: string;
  /** The same for the large image, not pulled. Made on first use. */
  bigImage(): Promise<string>;
  /** Images of other shapes, in the same way. */
  shapedImage(repository: Shape): Promise<string>;
  /** `http://127.0.0.1:port`, or https, where the engine listens besides its socket if the measure says so. */
  readonly tcpUrl: string;
}

export interface Measure {
  readonly name: string;
  readonly metrics: readonly Metric[];
  /** Flags of the engine. */
  readonly args?: readonly string[];
  /** The engine listens on this besides its socket. */
  readonly transport?: 'tcp' | 'tls';
  /** Not for dockerd: for minutes, or for ever, it does not answer. */
  readonly isForEnginedAlone?: boolean;
  /** It is measured only when `--only` names it. */
  readonly isForRequest?: boolean;
  /**
   * The metrics of the engine are wanted, which dockerd does not have: it is left out, and `tcpUrl` leads to the
   * metrics.
   */
  readonly needsMetrics?: boolean;
  /**
   * Sets up what is not to be measured on a fresh engine; the result takes one sample. `startAnother` makes an engine
   * of the same kind that has the image, and nothing else.
   */
  prepare(engine: Engine, setting: Setting, startAnother: () => Promise<Engine>): Promise<() => Promise<Sample>>;
}

/** Middle value; the mean of both middle ones for an even count. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2;
}

/** Milliseconds that `action`, which uses much memory or writes much, takes in memory that is at hand. */
export function timedWarm(action: () => Promise<unknown>): Promise<number> {
  warmMemory();
  return timed(action);
}

/** Milliseconds that `action` takes. */
export async function timed(action: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await action();
  return performance.now() - begin;
}
