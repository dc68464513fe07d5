/** The progress of the pulls that are under way, by the name of their run. */
import type { ProgressEncoders } from '../../ports/progress.js';
import type { PullJob } from './pull.messages.js';
import { PullProgress } from './pull-progress.js';

export class PullBoards {
  readonly #jobs = new Map<string, PullProgress>();

  constructor(private readonly encoders: ProgressEncoders) {}

  /** Returns the progress of a resolved job; a new one begins with the opening lines. */
  progress(job: PullJob): PullProgress {
    const existing = this.#jobs.get(job.pull.id);
    if (existing) return existing;
    const progress = new PullProgress(job, this.encoders);
    this.#jobs.set(job.pull.id, progress);
    return progress;
  }

  /** Closes the progress of an ended job, with the error that readers are to see, and returns it. */
  close(id: string, error?: unknown): PullProgress | undefined {
    const progress = this.#jobs.get(id);
    this.#jobs.delete(id);
    progress?.close(error);
    return progress;
  }
}
