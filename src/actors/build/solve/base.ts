/** Images that stages begin with, and that files are taken from. */
import type { LineRange } from '../../../build/dockerfile/ast.js';
import { formatPlatform, type Platform } from '../../../build/dockerfile/platform.js';
import { digestOf } from '../../../build/outputs/image-documents.js';
import { dataLoss } from '../../../errors/engine-error.js';
import { parseConfig } from '../../../images/config-document.js';
import { platformsOf } from '../../../images/platform.js';
import { chainOf } from '../../../ports/chain-id.js';
import type { Image, ImageConfigDocument } from '../../../ports/images.js';
import type { Digest } from '../../../ports/storage.js';
import { baseImage } from '../base-image.js';
import { blamed, prefixed } from './failure.js';
import { PullStatuses } from './pull-statuses.js';
import { imageMaterial, type NamedImage } from './image-material.js';
import { newStep, type Operation, type PlannedStep, vertexDigest } from './step.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

export interface WantedBase {
  /** Such as `docker.io/library/alpine:3`. */
  readonly name: string;
  readonly written: string;
  /** undefined: one that is here may have any. */
  readonly platform: Platform | undefined;
  /** undefined: no line of the Dockerfile asks for it. */
  readonly lines: LineRange | undefined;
  /** The context that stands for it. */
  readonly context?: string;
}

/** An image whose files need not be here yet. */
export interface BaseImage extends NamedImage {
  readonly platform: Platform | undefined;
  readonly topLayer: Digest | undefined;
}

export class BaseImages {
  readonly #loading = new Map<string, Promise<BaseImage>>();
  readonly #byName = new Map<string, Promise<BaseImage>>();

  constructor(
    private readonly tools: SolveTools,
    private readonly vertices: Vertices,
    private readonly signal: AbortSignal,
    /** The build is for several platforms. */
    private readonly isMulti: boolean,
  ) {}

  /** Returns the configuration of an image. @throws EngineError with the step and the lines to blame. */
  async load({ name, written, platform, lines, context }: WantedBase): Promise<BaseImage> {
    const where = this.isMulti && platform ? `${formatPlatform(platform)} internal` : 'internal';
    const step = context === undefined ? `[${where}] load metadata for ${name}` : metadataOf(context, written);
    const key = JSON.stringify([name, platform, context]);
    const loading =
      this.#loading.get(key) ?? this.vertices.during(step, () => this.#load(name, platform), ['metadata', key]);
    this.#loading.set(key, loading);
    this.#byName.set(name, loading);
    try {
      return await loading;
    } catch (error) {
      if (this.signal.aborted) throw error;
      const asked = context === undefined ? `${written}: ` : '';
      const explained = prefixed(error, `${asked}failed to resolve source metadata for ${name}: `);
      throw blamed(explained, { vertex: vertexDigest(['metadata', key]), ...(lines && { lines }) });
    }
  }

  /** Returns an image that was asked for by this name, for any platform; undefined: it is not here. */
  async loaded(name: string): Promise<BaseImage | undefined> {
    return this.#byName.get(name)?.catch(() => undefined);
  }

  /** Resolves when no image is asked for any more. */
  settled(): Promise<unknown> {
    return Promise.allSettled(this.#loading.values());
  }

  async #load(name: string, platform: Platform | undefined): Promise<BaseImage> {
    const { deps, request } = this.tools;
    const { pull, credentials } = request;
    const question = { name, platform, pull, credentials };
    // The configuration in memory had the right digest when it was read or written. So the build is what it would be
    // if its file was not damaged since, and stays whole: it has a configuration of its own, and holds the layers. The
    // next start finds the damage and removes the image. A build then fetches it, and finds its steps in the cache.
    const here = deps.configs.present(question);
    if (here !== undefined) return this.#held(name, platform, here);
    const { digest, config } = await deps.configs.find(question, this.signal);
    const present = deps.images.get(digest);
    const configDigest = digestOf(config);
    const image = present && platformsOf(present).find((one) => one.configDigest === configDigest);
    if (image !== undefined) return this.#held(name, platform, image);
    const document = parseConfig(config);
    const topLayer = topOf(document);
    const shown = pinned(name, digest);
    return { name, shown, platform, id: configDigest, names: [], config: document, topLayer };
  }

  /** Returns an image that is here, and stays until the build is over. */
  #held(name: string, platform: Platform | undefined, image: Image): BaseImage {
    const { deps, layers } = this.tools;
    const letGo = deps.images.hold(image.id);
    this.tools.atEnd(async () => letGo());
    if (image.topLayer !== undefined) layers.hold(image.topLayer);
    const { id, config: document, topLayer } = image;
    return { name, shown: name, platform, id, names: deps.images.namesOf(id), config: document, topLayer };
  }
}

function metadataOf(context: string, written: string): string {
  return `[context ${context}] load metadata for ${written}`;
}

/**
 * Returns the step that gives the files of an image, which is pulled then if it is not here.
 * @param text follows the label in its name; absent: FROM, and the name of the image.
 */
export function imageStep(image: BaseImage, label: string, lines: LineRange | undefined, text?: string): PlannedStep {
  const { name, shown, platform, topLayer } = image;
  const operation: Operation = {
    identity: ['image', topLayer ?? null],
    description: `pulled from ${name}`,
    isImage: true,
    recipe: { operation: { source: { identifier: `docker-image://${shown}` } }, material: imageMaterial(image) },
    content: () => Promise.resolve(null),
    perform: async ({ tools, step, signal }) => {
      const { deps, request, layers } = tools;
      if (topLayer === undefined) return { layer: undefined };
      if (deps.layers.find(topLayer) === undefined) {
        const statuses = new PullStatuses(request.observer, step.digest);
        // By digest no tag changes: it goes on to name an image that this host can run.
        const pulled = platform === undefined ? name : shown;
        const onLine = (lines: string): void => statuses.add(lines);
        const wanted = { name: pulled, platform, onLine, form: 'typed' } as const;
        const now = await baseImage(deps, wanted, { ...request, pull: false }, signal);
        if (now.topLayer !== topLayer) throw dataLoss(`image ${name} is another one now`);
      }
      layers.hold(topLayer);
      return { layer: topLayer };
    },
  };
  const stepName = `${label}${text ?? `FROM ${shown}`}`;
  return newStep({ name: stepName, operation, parent: undefined, sources: [], lines, isFresh: false });
}

function topOf({ rootfs }: ImageConfigDocument): Digest | undefined {
  return chainOf(rootfs.diff_ids).at(-1);
}

function pinned(name: string, digest: Digest): string {
  return name.includes('@') ? name : `${name}@${digest}`;
}
