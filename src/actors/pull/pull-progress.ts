/** The progress of one pull in both of its forms: the classic stream of the Engine API, and the typed one. */
import { messageOf } from '../../errors/engine-error.js';
import type { ResolvedLayer } from '../../registry/resolve.js';
import { bytesMessage, errorMessage, type ProgressMessage, stateMessage } from './progress.js';
import { ProgressBoard } from './progress-board.js';
import type { PullJob } from './pull.machine.js';
import type { LayerView } from './pull.messages.js';
import { TypedProgress } from './typed-progress.js';

export type ProgressForm = 'classic' | 'typed';

export class PullProgress {
  readonly #classic = new ProgressBoard();
  readonly #typed: TypedProgress;
  readonly #layers: readonly LayerProgress[];

  constructor(job: PullJob) {
    const { reference } = job.pull;
    this.#classic.say({ status: `Pulling from ${reference.path}`, id: reference.digest ?? reference.tag ?? '' });
    this.#typed = new TypedProgress(job);
    this.#layers = job.located.image.layers.map(
      (layer, index) => new LayerProgress(this.#classic, this.#typed, index, layer),
    );
  }

  board(form: ProgressForm): ProgressBoard {
    return form === 'typed' ? this.#typed.board : this.#classic;
  }

  layer(index: number): LayerProgress {
    const layer = this.#layers[index];
    if (!layer) throw new Error(`the image has no layer ${index}`);
    return layer;
  }

  /** A line of the classic stream. */
  say(message: ProgressMessage): void {
    this.#classic.say(message);
  }

  /** The whole image is here already; the classic stream says nothing of its layers then. */
  cached(): void {
    this.#typed.cached();
  }

  /** The name was given to an image that it did not have before. */
  renewed(): void {
    this.#typed.renewed();
  }

  close(error?: unknown): void {
    if (error !== undefined) this.#classic.say(errorMessage(messageOf(error)));
    this.#classic.end(error === undefined ? 'done' : 'failed');
    this.#typed.close(error);
  }
}

/** Clients see this of one layer. */
export class LayerProgress {
  readonly #board: ProgressBoard;
  readonly #typed: ReturnType<TypedProgress['layer']>;
  readonly #subject: string;
  readonly #id: string;
  readonly #total: number;
  #downloaded = 0;

  constructor(board: ProgressBoard, typed: TypedProgress, index: number, { blob }: ResolvedLayer) {
    this.#board = board;
    this.#typed = typed.layer(index);
    this.#subject = `layer-${index}`;
    this.#id = blob.digest.slice(7, 19);
    this.#total = blob.sizeBytes;
  }

  begin(): void {
    this.#state('Pulling fs layer');
    this.#typed.publish('wait');
  }

  exists(): void {
    this.#state('Already exists');
    this.#typed.finish('cached');
  }

  done(): void {
    this.#state('Pull complete');
    this.#typed.finish('done');
  }

  show(view: LayerView): void {
    this.#typed.show(view);
    switch (view.phase) {
      case 'waiting':
        return this.#state('Waiting');
      case 'downloading':
        return this.#download(view.bytes);
      case 'retrying':
        return view.seconds === 0
          ? undefined
          : this.#state(`Retrying in ${view.seconds} second${view.seconds === 1 ? '' : 's'}`, 'Retrying');
      case 'verifying':
        // The last bytes and this can come as one: what is shown of a download ends with all of it.
        this.#download(this.#total);
        return this.#state('Verifying Checksum');
      case 'extracting':
        this.#state('Download complete');
        return this.#board.publish(
          this.#subject,
          'Extracting',
          bytesMessage('Extracting', this.#id, view.bytes, this.#total),
        );
      case 'extracted':
        return undefined;
    }
  }

  /** A layer that has to be fetched anew, from another host perhaps, is shown as far as it once was. */
  #download(bytes: number): void {
    this.#downloaded = Math.max(this.#downloaded, Math.min(bytes, this.#total));
    this.#board.publish(
      this.#subject,
      'Downloading',
      bytesMessage('Downloading', this.#id, this.#downloaded, this.#total),
    );
  }

  #state(text: string, status = text): void {
    this.#board.publish(this.#subject, status, stateMessage(text, this.#id));
  }
}
