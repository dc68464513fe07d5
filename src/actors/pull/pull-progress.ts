/** The progress of one pull in both of its forms: the classic stream of the Engine API, and the typed one. */
import { messageOf } from '../../errors/engine-error.js';
import { LayerProgress } from './layer-progress.js';
import { errorMessage, type ProgressMessage } from './progress.js';
import { ProgressBoard } from './progress-board.js';
import type { PullJob } from './pull.messages.js';
import { finalRecord, resolvedRecord } from './typed-progress.js';

export type ProgressForm = 'classic' | 'typed';

export class PullProgress {
  readonly #job: PullJob;
  readonly #boards: Readonly<Record<ProgressForm, ProgressBoard>> = {
    classic: new ProgressBoard(),
    typed: new ProgressBoard(),
  };
  readonly #layers: readonly LayerProgress[];
  #isNew = false;

  constructor(job: PullJob) {
    this.#job = job;
    const { reference } = job.pull;
    this.say({ status: `Pulling from ${reference.path}`, id: reference.digest ?? reference.tag ?? '' });
    this.#boards.typed.say(resolvedRecord(job));
    this.#layers = job.located.image.layers.map((layer, index) => new LayerProgress(this.#boards, index, layer));
  }

  board(form: ProgressForm): ProgressBoard {
    return this.#boards[form];
  }

  layer(index: number): LayerProgress {
    const layer = this.#layers[index];
    if (!layer) throw new Error(`the image has no layer ${index}`);
    return layer;
  }

  /** Adds a line to the classic stream. */
  say(message: ProgressMessage): void {
    this.#boards.classic.say(message);
  }

  /** Notes that the whole image is here already; the classic stream says nothing of its layers then. */
  cached(): void {
    for (const layer of this.#layers) layer.finish('cached');
  }

  /** Notes that the name was given to an image that did not have it before. */
  renewed(): void {
    this.#isNew = true;
  }

  close(error?: unknown): void {
    const isDone = error === undefined;
    for (const layer of this.#layers) layer.finish(isDone ? 'cached' : 'failed');
    if (!isDone) this.say(errorMessage(messageOf(error)));
    this.#boards.typed.say(finalRecord(this.#job, { isNew: this.#isNew, error }));
    for (const board of Object.values(this.#boards)) board.end(isDone ? 'done' : 'failed');
  }
}
