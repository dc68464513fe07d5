/** The progress of one pull in both of its forms: the classic stream of the Engine API, and the typed one. */
import { messageOf } from '../../errors/engine-error.js';
import type { ProgressEncoders, ProgressFact } from '../../ports/progress.js';
import { type Boards, LayerProgress } from './layer-progress.js';
import { type BoardReader, ProgressBoard } from './progress-board.js';
import type { PullJob } from './pull.messages.js';
import { finalRecord, resolvedRecord } from './typed-progress.js';

export type ProgressForm = keyof ProgressEncoders;

export class PullProgress {
  readonly #job: PullJob;
  readonly #boards: Boards;
  readonly #layers: readonly LayerProgress[];
  #isNew = false;

  constructor(job: PullJob, { classic, typed }: ProgressEncoders) {
    this.#job = job;
    this.#boards = { classic: new ProgressBoard(classic), typed: new ProgressBoard(typed) };
    const { reference } = job.pull;
    this.say(`Pulling from ${reference.path}`, reference.digest ?? reference.tag ?? '');
    this.#boards.typed.say(resolvedRecord(job));
    this.#layers = job.located.image.layers.map((layer, index) => new LayerProgress(this.#boards, index, layer));
  }

  read(form: ProgressForm, onClose: () => void): BoardReader {
    return this.#boards[form].read(onClose);
  }

  layer(index: number): LayerProgress {
    const layer = this.#layers[index];
    if (!layer) throw new Error(`the image has no layer ${index}`);
    return layer;
  }

  /** Adds a line to the classic stream. */
  say(text: string, id?: string): void {
    this.#tell({ kind: 'line', text, ...(id === undefined ? {} : { id }) });
  }

  #tell(fact: ProgressFact): void {
    this.#boards.classic.say(fact);
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
    if (!isDone) this.#tell({ kind: 'failed', message: messageOf(error) });
    this.#boards.typed.say(finalRecord(this.#job, { isNew: this.#isNew, error }));
    for (const board of [this.#boards.classic, this.#boards.typed]) board.end(isDone ? 'done' : 'failed');
  }
}
