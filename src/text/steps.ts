/**
 * Steps of the daemon's work are told to whoever subscribed to their channel, such as a timeline, and to a tracer, if
 * there is one. Without either no time is read and nothing is made.
 */
import { channel } from 'node:diagnostics_channel';

export interface Step {
  /** Room and action, such as `layers.mount`. */
  readonly name: string;
  /** On the clock of `performance.now()`, in milliseconds. */
  readonly begunMs: number;
  readonly endedMs: number;
}

/** Follows requests through the steps that they need. */
export interface Tracer {
  /** Begins a trace. `traceparent` is the header of a client that has begun one already. */
  request(method: string, pattern: string, traceparent: string | undefined): TracedRequest;
  /** Runs a step of the request to which the caller belongs; without one it only runs it. */
  run<T>(name: string, work: () => T): T;
}

export interface TracedRequest {
  /** Runs `work` and all that it leads to as a part of the request. */
  run<T>(work: () => T): T;
  /** Ends the request. */
  end(status: number): void;
}

export const steps = channel('engined:step');

let tracer: Tracer | undefined;

/** Sets who traces. Parts that are made before are not traced, so it is set first. */
export function traceSteps(by: Tracer | undefined): void {
  tracer = by;
}

/** Returns who traces requests; undefined: nobody does. */
export function requestTracer(): Tracer | undefined {
  return tracer;
}

/** Runs `work` as a step; what it returns or throws is left as it is. */
export function step<T>(name: string, work: () => Promise<T>): Promise<T> {
  if (tracer !== undefined) return tracer.run(name, () => told(name, work));
  return told(name, work);
}

function told<T>(name: string, work: () => Promise<T>): Promise<T> {
  if (!steps.hasSubscribers) return work();
  const begunMs = performance.now();
  const end = (): void => steps.publish({ name, begunMs, endedMs: performance.now() } satisfies Step);
  const running = work();
  running.then(end, end);
  return running;
}

/**
 * Every method that returns a promise becomes a step `room.method`; without a subscriber or tracer this is `target`
 * itself.
 */
export function inSteps<T extends object>(room: string, target: T): T {
  if (!steps.hasSubscribers && tracer === undefined) return target;
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
  const result = tracer === undefined ? work() : tracer.run(name, work);
  if (result instanceof Promise && steps.hasSubscribers) {
    const end = (): void => steps.publish({ name, begunMs, endedMs: performance.now() } satisfies Step);
    result.then(end, end);
  }
  return result;
}
