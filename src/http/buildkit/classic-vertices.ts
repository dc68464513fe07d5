/** Makes steps of BuildKit's progress of the lines of a classic build. */
import type { ClassicEvent } from '../../ports/build.js';
import { stepDigest } from './ordered-build.js';
import type { BuildJob } from './build-jobs.js';

const STEP = /^Step (\d+)\/(\d+) : /;
const CACHED = ' ---> Using cache\n';

interface Step {
  readonly digest: string;
  readonly name: string;
  readonly started: number;
  cached: boolean;
}

export class ClassicVertices {
  readonly #job: BuildJob;
  #step: Step | undefined;
  #last: string | undefined;

  constructor(job: BuildJob) {
    this.#job = job;
  }

  add(event: ClassicEvent): void {
    if (event.kind === 'output' && this.#step !== undefined)
      this.#job.progress.log(this.#step.digest, event.stream, event.bytes);
    if (event.kind !== 'text') return;
    const [head, number, count] = STEP.exec(event.text) ?? [];
    if (head !== undefined) {
      this.end();
      const name = `[${number}/${count}] ${event.text.slice(head.length).trim()}`;
      this.#step = { digest: stepDigest(this.#job.ref, name), name, started: Date.now(), cached: false };
      this.#show(undefined);
    } else if (event.text === CACHED && this.#step !== undefined) this.#step.cached = true;
  }

  /** Ends the step that is under way. */
  end(error?: string): void {
    this.#show(Date.now(), error);
    this.#last = this.#step?.digest;
    this.#step = undefined;
  }

  /** The step that runs, which is the one that has failed when the build has. */
  get current(): string | undefined {
    return this.#step?.digest;
  }

  #show(completed: number | undefined, error?: string): void {
    const step = this.#step;
    if (step === undefined) return;
    this.#job.progress.vertex({
      ...step,
      inputs: this.#last === undefined ? [] : [this.#last],
      ...(completed !== undefined && { completed }),
      ...(error !== undefined && { error }),
    });
  }
}
