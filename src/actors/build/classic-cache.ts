/**
 * Where the classic builder looks for what a step made before: among the images that other builds here have left, or,
 * when a client names images, in what the histories of those tell, so that images of other hosts serve as well.
 */
import { isEngineError } from '../../errors/engine-error.js';
import type { FileImageStore } from '../../images/store.js';
import type { BuildRequest } from '../../ports/build.js';
import type { Image, ImageHistory } from '../../ports/images.js';
import { chainOf } from '../../ports/chain-id.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import type { ClassicImages } from './classic-images.js';
import type { StageState } from './stage-state.js';

export interface ClassicCacheDeps {
  readonly images: FileImageStore;
  readonly layers: Pick<LayerStore, 'find'>;
}

/** A child of an image whose parents are not known would be walked for ever without this. */
const MAX_PARENTS = 1000;

export class ClassicCache {
  readonly #steps: ClassicImages;
  readonly #deps: ClassicCacheDeps;
  /** undefined: all images count. */
  #sources: readonly Image[] | undefined;

  /** Names of images that are not here, and such that are none, are left out, as dockerd does. */
  constructor(deps: ClassicCacheDeps, steps: ClassicImages, { cacheFrom }: Pick<BuildRequest, 'cacheFrom'>) {
    this.#deps = deps;
    this.#steps = steps;
    if (cacheFrom.length === 0) return;
    this.#sources = cacheFrom.flatMap(({ attributes }) => present(deps.images, attributes.get('ref') ?? ''));
  }

  /**
   * Returns the image that the same step has left. One is made when a named image has this step in the middle of its
   * history. @param state is the one after the step, with the files and the history from before it.
   */
  async find(state: StageState, command: readonly string[]): Promise<Image | undefined> {
    const own = await this.#steps.cached(state, command);
    if (this.#sources === undefined) return own;
    if (own !== undefined && this.#sources.some((source) => this.#descends(source, own))) return own;
    for (const source of this.#sources) {
      const entry = nextEntry(source, state);
      if (entry?.created_by !== command.join(' ')) continue;
      if (source.config.history?.length === state.history.length + 1) return source;
      // Another image may have gone another way from here.
      this.#sources = [source];
      return this.#restore(source, state, command, entry);
    }
    return undefined;
  }

  #descends({ id }: Image, from: Image): boolean {
    let parent: string | undefined = this.#deps.images.get(id)?.parent;
    for (let depth = 0; parent !== undefined && parent !== '' && depth < MAX_PARENTS; depth++) {
      if (parent === from.id) return true;
      parent = this.#deps.images.get(parent as Digest)?.parent;
    }
    return false;
  }

  /** Makes the image that the source's build had after this step. */
  async #restore(
    { config: { rootfs } }: Image,
    state: StageState,
    command: readonly string[],
    entry: ImageHistory,
  ): Promise<Image | undefined> {
    const chain = chainOf(rootfs.diff_ids)[state.diffIds.length];
    const layer = entry.empty_layer === true || chain === undefined ? undefined : this.#deps.layers.find(chain);
    const { image } = await this.#steps.commit({ state, command, layer, container: '', entry });
    return image === undefined ? undefined : this.#deps.images.get(image);
  }
}

function present(images: FileImageStore, name: string): Image[] {
  try {
    return [images.resolve(name)];
  } catch (error) {
    if (isEngineError(error, 'not-found') || isEngineError(error, 'invalid')) return [];
    throw error;
  }
}

/** Returns the step of a source after those that have led to `state`; undefined: it began in another way. */
function nextEntry({ config }: Image, { history, diffIds }: StageState): ImageHistory | undefined {
  const { history: told = [], rootfs } = config;
  const isSame =
    history.every((entry, at) => sameEntry(entry, told[at])) && diffIds.every((id, at) => id === rootfs.diff_ids[at]);
  return isSame ? told[history.length] : undefined;
}

function sameEntry(one: ImageHistory, other: ImageHistory | undefined): boolean {
  return (
    other !== undefined &&
    one.created === other.created &&
    one.created_by === other.created_by &&
    (one.comment ?? '') === (other.comment ?? '') &&
    (one.author ?? '') === (other.author ?? '') &&
    (one.empty_layer ?? false) === (other.empty_layer ?? false)
  );
}
