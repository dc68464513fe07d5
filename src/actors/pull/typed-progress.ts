/**
 * The second form of a pull's progress, `application/vnd.engine.progress+json`: one JSON object a line, each either
 * about one layer of the image or about the pull as a whole. docs/registries.md describes it for its readers.
 */
import { EngineError, messageOf } from '../../errors/engine-error.js';
import { canonicalString } from '../../images/reference.js';
import type { ResolvedLayer } from '../../registry/resolve.js';
import { factsOf } from '../../registry/failure.js';
import { ProgressBoard } from './progress-board.js';
import type { PullJob } from './pull.machine.js';
import type { LayerView } from './pull.messages.js';

export const TYPED_PROGRESS = 'application/vnd.engine.progress+json';

/** The last three are final. */
export type LayerPhase = 'wait' | 'download' | 'verify' | 'extract' | 'cached' | 'done' | 'failed';

type Detail = Readonly<Record<string, unknown>>;

const SPEED_INTERVAL_MS = 500;
/** Part of the newest measurement in the speed that is estimated with. */
const SPEED_WEIGHT = 0.3;

/** One layer: its numbers never go back nor above the size in the manifest, and it has one final record. */
class TypedLayer {
  readonly #board: ProgressBoard;
  readonly #index: number;
  readonly #layer: ResolvedLayer;
  readonly #speed = new Speed();
  #current = 0;
  #isFinal = false;

  constructor(board: ProgressBoard, index: number, layer: ResolvedLayer) {
    this.#board = board;
    this.#index = index;
    this.#layer = layer;
  }

  show(view: LayerView): void {
    const total = this.#layer.blob.sizeBytes;
    switch (view.phase) {
      case 'waiting':
        return this.publish('wait');
      case 'downloading': {
        this.#current = Math.max(this.#current, Math.min(view.bytes, total));
        const eta = this.#speed.secondsFor(view.bytes, total - this.#current);
        return this.publish('download', { endpoint: view.endpoint, ...(eta === undefined ? {} : { etaSeconds: eta }) });
      }
      case 'retrying':
        return this.publish('download', {
          endpoint: view.endpoint,
          retry: { afterSeconds: view.seconds, reason: view.reason },
        });
      case 'verifying':
        this.#current = total;
        return this.publish('verify');
      case 'extracting':
      case 'extracted':
        this.#current = total;
        return this.publish('extract');
    }
  }

  /** @param phase `cached`, `done` or `failed`; a second one counts for nothing. */
  finish(phase: LayerPhase): void {
    if (this.#isFinal) return;
    if (phase !== 'failed') this.#current = this.#layer.blob.sizeBytes;
    this.publish(phase);
    this.#isFinal = true;
  }

  publish(phase: LayerPhase, detail: Detail = {}): void {
    if (this.#isFinal) return;
    const { digest, sizeBytes } = this.#layer.blob;
    this.#board.publish(`layer-${this.#index}`, phase, {
      kind: 'layer',
      layer: this.#index,
      digest,
      phase,
      current: this.#current,
      total: sizeBytes,
      ...detail,
    });
  }
}

/** Bytes per second, smoothed. */
class Speed {
  #lastMs = 0;
  #lastBytes = 0;
  #perSecond: number | undefined;

  secondsFor(bytes: number, left: number): number | undefined {
    const now = performance.now();
    if (this.#lastMs === 0 || bytes < this.#lastBytes) {
      this.#lastMs = now;
      this.#lastBytes = bytes;
    } else if (now - this.#lastMs >= SPEED_INTERVAL_MS) {
      const measured = ((bytes - this.#lastBytes) * 1000) / (now - this.#lastMs);
      this.#perSecond =
        this.#perSecond === undefined ? measured : this.#perSecond * (1 - SPEED_WEIGHT) + measured * SPEED_WEIGHT;
      this.#lastMs = now;
      this.#lastBytes = bytes;
    }
    return this.#perSecond === undefined || this.#perSecond < 1 ? undefined : Math.ceil(left / this.#perSecond);
  }
}

export class TypedProgress {
  readonly board = new ProgressBoard();
  readonly #job: PullJob;
  readonly #layers: readonly TypedLayer[];
  #isNew = false;

  constructor(job: PullJob) {
    this.#job = job;
    const { layers } = job.located.image;
    this.#layers = layers.map((layer, index) => new TypedLayer(this.board, index, layer));
    const total = layers.reduce((sum, { blob }) => sum + blob.sizeBytes, 0);
    this.#pull('resolve', { endpoint: job.located.hosts[0]?.endpoints[0]?.url, layers: layers.length, total });
  }

  layer(index: number): TypedLayer {
    const layer = this.#layers[index];
    if (!layer) throw new Error(`the image has no layer ${index}`);
    return layer;
  }

  /** The whole image is here already. */
  cached(): void {
    for (const layer of this.#layers) layer.finish('cached');
  }

  /** The name was given to an image that it did not have before. */
  renewed(): void {
    this.#isNew = true;
  }

  close(error?: unknown): void {
    if (error === undefined) {
      this.cached();
      this.#pull('done', { isNew: this.#isNew, warnings: this.#job.located.image.warnings });
    } else {
      for (const layer of this.#layers) layer.finish('failed');
      this.#pull('failed', { error: errorDetail(error) });
    }
    this.board.end(error === undefined ? 'done' : 'failed');
  }

  #pull(phase: 'resolve' | 'done' | 'failed', detail: Detail): void {
    const { pull, located } = this.#job;
    this.board.say({
      kind: 'pull',
      phase,
      reference: canonicalString(pull.reference),
      digest: located.image.digest,
      imageId: located.image.imageId,
      ...detail,
    });
  }
}

/** Returns the description of a failure in a record. */
export function errorDetail(error: unknown): Detail {
  const { retryable } = factsOf(error);
  return {
    message: messageOf(error),
    ...(error instanceof EngineError ? { kind: error.kind, code: error.code } : {}),
    retryable: retryable === true,
  };
}
