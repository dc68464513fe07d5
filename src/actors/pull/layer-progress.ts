/** The progress of one layer, on the boards of both forms. Its numbers never go back nor above the blob's size. */
import type { ProgressFact, ProgressRecord } from '../../ports/progress.js';
import type { ResolvedLayer } from '../../registry/resolve.js';
import { type Detail, type LayerPhase, showStep } from './layer-phases.js';
import type { LayerView } from './layer-view.js';
import type { ProgressBoard } from './progress-board.js';
import { Speed } from './speed.js';

/** The boards of a pull. */
export interface Boards {
  readonly classic: ProgressBoard<ProgressFact>;
  readonly typed: ProgressBoard<ProgressRecord>;
}

export class LayerProgress {
  readonly #boards: Boards;
  readonly #index: number;
  readonly #blob: ResolvedLayer['blob'];
  readonly #speed = new Speed();
  #downloaded = 0;
  /** The typed form has the final record of this layer. */
  #isFinal = false;

  constructor(boards: Boards, index: number, { blob }: ResolvedLayer) {
    this.#boards = boards;
    this.#index = index;
    this.#blob = blob;
  }

  begin(): void {
    this.#say('Pulling fs layer');
    this.#publish('wait');
  }

  exists(): void {
    this.#say('Already exists');
    this.finish('cached');
  }

  done(): void {
    this.#say('Pull complete');
    this.finish('done');
  }

  /** Shows a step. A layer that has to be fetched anew, perhaps from another host, is shown as far as it once was. */
  show(view: LayerView): void {
    const total = this.#blob.sizeBytes;
    const { phase, detail, bytes = 0, lines } = showStep(view, total);
    this.#downloaded = Math.max(this.#downloaded, Math.min(bytes, total));
    for (const line of lines)
      this.#say(line.status, line.text, line.status === 'Downloading' ? this.#downloaded : line.bytes);
    const eta = view.type === 'downloading' ? this.#speed.secondsFor(view.bytes, total - this.#downloaded) : undefined;
    this.#publish(phase, eta === undefined ? detail : { ...detail, etaSeconds: eta });
  }

  /** Ends the layer in the typed form; a second end counts for nothing. */
  finish(phase: 'cached' | 'done' | 'failed'): void {
    if (phase !== 'failed' && !this.#isFinal) this.#downloaded = this.#blob.sizeBytes;
    this.#publish(phase);
    this.#isFinal = true;
  }

  #say(status: string, text = status, bytes?: number): void {
    const id = this.#blob.digest.slice(7, 19);
    const fact: ProgressFact =
      bytes === undefined
        ? { kind: 'state', status: text, id }
        : { kind: 'bytes', status: text, id, current: bytes, total: this.#blob.sizeBytes };
    this.#boards.classic.publish(`layer-${this.#index}`, status, fact);
  }

  #publish(phase: LayerPhase, detail: Detail = {}): void {
    if (this.#isFinal) return;
    const { digest, sizeBytes } = this.#blob;
    this.#boards.typed.publish(`layer-${this.#index}`, phase, {
      kind: 'layer',
      layer: this.#index,
      digest,
      phase,
      current: this.#downloaded,
      total: sizeBytes,
      ...detail,
    });
  }
}
