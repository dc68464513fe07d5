/** Tells an observer how the steps of a build go on. */
import { type EngineError, isEngineError } from '../../../errors/engine-error.js';
import type { BuildObserver } from '../../../ports/build.js';
import { asEngineError } from '../../kit/effect.js';
import { shownMessage } from './failure.js';
import { inputsOf, type PlannedStep, vertexDigest } from './step.js';

interface Shown {
  readonly digest: string;
  readonly inputs: readonly string[];
  readonly name: string;
}

export class Vertices {
  readonly #started = new Map<string, number>();

  constructor(private readonly observer: BuildObserver) {}

  /** Tells of a step that will come. */
  announce(step: PlannedStep): void {
    this.observer.vertex({ ...shownOf(step), cached: false });
  }

  started(step: PlannedStep): void {
    const started = Date.now();
    this.#started.set(step.digest, started);
    this.observer.vertex({ ...shownOf(step), cached: false, started });
  }

  done(step: PlannedStep, cached: boolean): void {
    const completed = Date.now();
    const started = this.#started.get(step.digest) ?? completed;
    this.observer.vertex({ ...shownOf(step), cached, started, completed });
  }

  failed(step: PlannedStep, error: EngineError): void {
    const completed = Date.now();
    const started = this.#started.get(step.digest);
    // A step that never began has nothing to tell.
    if (started === undefined) return;
    this.observer.vertex({ ...shownOf(step), cached: false, started, completed, error: messageFor(error) });
  }

  /** Shows an action as a step of its own. */
  async during<T>(name: string, action: (digest: string) => Promise<T>, identity: unknown = name): Promise<T> {
    const digest = vertexDigest(identity);
    const vertex = { digest, inputs: [], name, cached: false, started: Date.now() };
    this.observer.vertex(vertex);
    try {
      const result = await action(digest);
      this.observer.vertex({ ...vertex, completed: Date.now() });
      return result;
    } catch (error) {
      this.observer.vertex({ ...vertex, completed: Date.now(), error: messageFor(asEngineError(error)) });
      throw error;
    }
  }

  /** Shows a part of a step while it lasts. */
  async status<T>(vertex: string, name: string, action: () => Promise<T>): Promise<T> {
    const status = { id: name, vertex, name: '', current: 0, total: 0, started: Date.now() };
    this.observer.status(status);
    const result = await action();
    this.observer.status({ ...status, completed: Date.now() });
    return result;
  }
}

function shownOf(step: PlannedStep): Shown {
  return { digest: step.digest, inputs: inputsOf(step).map(({ digest }) => digest), name: step.name };
}

/** Clients know a step that was given up by these words. */
function messageFor(error: EngineError): string {
  return isEngineError(error, 'cancelled') ? 'context canceled' : shownMessage(error);
}
