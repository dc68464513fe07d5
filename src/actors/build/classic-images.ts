/** The images that the classic builder leaves of its steps, which are its cache, too. */
import { DEFAULT_PATH } from '../../build/dockerfile/scope.js';
import { eventAttributes, type ImageEmit } from '../../images/removal.js';
import type { FileImageStore } from '../../images/store.js';
import type { Image, ImageConfigDocument, ImageHistory, ImageRuntimeConfig } from '../../ports/images.js';
import type { LayerInfo } from '../../ports/storage.js';
import type { Platform } from '../../registry/platform.js';
import type { StageState } from './stage-state.js';

/** The diff ID of a tar without entries; an image leaves such a layer out. */
const EMPTY_DIFF_ID = 'sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef';

/** The configuration of an image with that of the container which the step had. */
type SteppedDocument = ImageConfigDocument & { readonly container_config?: ImageRuntimeConfig };

export interface ClassicStep {
  readonly state: StageState;
  /** The command of the step's container, which tells what it was. */
  readonly command: readonly string[];
  readonly layer: LayerInfo | undefined;
  /** ID of the container of a RUN. */
  readonly container: string;
  /** Its entry in the history, where it was made elsewhere. */
  readonly entry?: ImageHistory;
}

export class ClassicImages {
  constructor(
    private readonly images: FileImageStore,
    private readonly emit: ImageEmit,
  ) {}

  /** Returns the newest image that the same step has made of the same image. */
  async cached(state: StageState, command: readonly string[]): Promise<Image | undefined> {
    const wanted = stepText(state, command);
    let found: Image | undefined;
    for (const image of this.#after(state)) {
      const { container_config: before } = image.config as SteppedDocument;
      if (before === undefined || JSON.stringify(sorted(before)) !== wanted) continue;
      if (found === undefined || (image.config.created ?? '') > (found.config.created ?? '')) found = image;
    }
    return found;
  }

  /** Returns the images that may have been made by one step more. */
  #after({ image: before }: StageState): Iterable<Image> {
    // Images of other hosts have no parents, either.
    if (before === undefined)
      return this.images.list().filter(({ parent, config }) => parent === '' && config.history?.length === 1);
    return this.images.childrenOf(before).flatMap((id) => this.images.get(id) ?? []);
  }

  /** Stores what a step has made, and tells of it. The parent is the image before it. */
  async commit({ state, command, layer, container, entry: made }: ClassicStep): Promise<StageState> {
    const isEmpty = layer === undefined || layer.diffId === EMPTY_DIFF_ID;
    const created = made?.created ?? new Date().toISOString();
    const entry: ImageHistory = made ?? {
      created,
      created_by: command.join(' '),
      ...(state.author === '' ? {} : { author: state.author }),
      ...(isEmpty ? { empty_layer: true } : {}),
    };
    const next: StageState = {
      ...state,
      topLayer: isEmpty ? state.topLayer : layer.chainId,
      diffIds: isEmpty ? state.diffIds : [...state.diffIds, layer.diffId],
      history: [...state.history, entry],
    };
    const document: SteppedDocument = {
      architecture: state.architecture,
      ...(state.variant === undefined ? {} : { variant: state.variant }),
      os: state.os,
      created,
      ...(state.author === '' ? {} : { author: state.author }),
      ...(container === '' ? {} : { container }),
      container_config: { ...state.config, Cmd: [...command] },
      config: state.config,
      rootfs: { type: 'layers', diff_ids: [...next.diffIds] },
      history: [...next.history],
    };
    const image = await this.images.createMade(
      Buffer.from(JSON.stringify(document)),
      state.image === undefined ? {} : { parent: state.image },
    );
    this.emit('create', image.id, eventAttributes(image, image.id));
    return { ...next, image: image.id };
  }
}

/** Returns the state of a stage that begins with nothing. */
export function emptyState({ architecture, os, variant }: Platform): StageState {
  const nothing = { author: '', topLayer: undefined, image: undefined, diffIds: [], history: [], hasOwnCmd: false };
  const config = { Env: [`PATH=${DEFAULT_PATH}`] };
  return { ...nothing, config, architecture, os, variant: variant === '' ? undefined : variant };
}

/** Returns the state after a step that was made before. */
export function stateOf(image: Image, before: Pick<StageState, 'hasOwnCmd'>): StageState {
  const { config } = image;
  return {
    config: config.config ?? {},
    author: config.author ?? '',
    architecture: config.architecture,
    os: config.os,
    variant: config.variant,
    topLayer: image.topLayer,
    diffIds: config.rootfs.diff_ids,
    history: config.history ?? [],
    image: image.id,
    hasOwnCmd: before.hasOwnCmd,
  };
}

function stepText({ config }: StageState, command: readonly string[]): string {
  return JSON.stringify(sorted({ ...config, Cmd: [...command] }));
}

/** Sorts the members, so that equal configurations have equal texts; members that say nothing are left out. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, member]) => member !== undefined && member !== null && member !== '')
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => [key, sorted(member)]),
  );
}
