/** Tells step by step how an image was made. */
import { dataLoss } from '../errors/engine-error.js';
import type { Image, ImageStore } from '../ports/images.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { chainOf } from '../ports/chain-id.js';

export interface HistoryStep {
  /** ID of the image where this host knows it, else `<missing>`. */
  readonly id: string;
  /** Seconds since the epoch. */
  readonly created: number;
  readonly createdBy: string;
  readonly comment: string;
  readonly tags: readonly string[];
  readonly sizeBytes: number;
}

/** Returns the steps, newest first. Throws data-loss when the configuration tells of more layers than there are. */
export function historyOf(image: Image, store: ImageStore, layers: LayerStore): HistoryStep[] {
  const chain = chainOf(image.config.rootfs.diff_ids);
  let layer = 0;
  const steps = (image.config.history ?? []).map((step): HistoryStep => {
    const created = step.created === undefined ? Number.NaN : Date.parse(step.created);
    let sizeBytes = 0;
    if (step.empty_layer !== true) {
      const chainId = chain[layer++];
      if (chainId === undefined) throw dataLoss('too many non-empty layers in History section', { code: 'BAD_CONFIG' });
      sizeBytes = layers.find(chainId)?.sizeBytes ?? 0;
    }
    return {
      id: '<missing>',
      created: Number.isNaN(created) ? 0 : Math.floor(created / 1000),
      createdBy: step.created_by ?? '',
      comment: step.comment ?? '',
      tags: [],
      sizeBytes,
    };
  });
  steps.reverse();
  // The newest steps are those of the image itself and of the images here that it was made from.
  let owner: Image | undefined = image;
  return steps.map((step) => {
    if (!owner) return step;
    const { id, repoTags: tags, parent }: Image = owner;
    owner = parent === '' ? undefined : store.get(parent as Digest);
    return { ...step, id, tags };
  });
}
