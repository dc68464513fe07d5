/**
 * Steps of the daemon's work are told to whoever subscribed to their channel, such as a timeline. Without a subscriber
 * no time is read and nothing is made.
 */
import { channel } from 'node:diagnostics_channel';

export interface Step {
  /** Room and action, such as `layers.mount`. */
  readonly name: string;
  /** On the clock of `performance.now()`, in milliseconds. */
  readonly begunMs: number;
  readonly endedMs: number;
}

export const steps = channel('engined:step');

/** Runs `work` as a step; what it returns or throws is left as it is. */
export function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  if (!steps.hasSubscribers) return work();
  const begunMs = performance.now();
  const end = (): void => steps.publish({ name, begunMs, endedMs: performance.now() } satisfies Step);
  const running = work();
  running.then(end, end);
  return running;
}

/** Every method that returns a promise becomes a step `room.method`; without a subscriber this is `target` itself. */
export function inSteps<T extends object>(room: string, target: T): T {
  if (!steps.hasSubscribers) return target;
  return new Proxy(target, {
    get(_, property) {
      // Private fields are found on the object alone, so it is the receiver of everything.
      const value: unknown = Reflect.get(target, property, target);
      if (typeof value !== 'function' || typeof property === 'symbol') return value;
      return (...input: unknown[]): unknown => noted(`${room}.${property}`, () => Reflect.apply(value, target, input));
    },
  });
}

/** As `step`, for what may return no promise. */
function noted(name: string, work: () => unknown): unknown {
  const begunMs = performance.now();
  const result = work();
  if (result instanceof Promise) {
    const end = (): void => steps.publish({ name, begunMs, endedMs: performance.now() } satisfies Step);
    result.then(end, end);
  }
  return result;
}
