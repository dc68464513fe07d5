/** Images that stages begin with, and that files are taken from. */
import type { LineRange } from '../../../build/dockerfile/ast.js';
import type { Platform } from '../../../build/dockerfile/platform.js';
import { asEngineError } from '../../kit/effect.js';
import { EngineError } from '../../../errors/engine-error.js';
import type { Image } from '../../../ports/images.js';
import { baseImage } from '../base-image.js';
import { blamed } from './failure.js';
import { newStep, type Operation, type PlannedStep, vertexDigest } from './step.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

export interface WantedBase {
  /** Such as `docker.io/library/alpine:3`. */
  readonly name: string;
  readonly written: string;
  readonly platform: Platform | undefined;
  readonly lines: LineRange;
}

export class BaseImages {
  readonly #loading = new Map<string, Promise<Image>>();
  readonly #byName = new Map<string, Promise<Image>>();

  constructor(
    private readonly tools: SolveTools,
    private readonly vertices: Vertices,
    private readonly signal: AbortSignal,
  ) {}

  /** Returns the image; it is pulled if it is not here. @throws EngineError with the step and the lines to blame. */
  async load({ name, written, platform, lines }: WantedBase): Promise<Image> {
    const step = `[internal] load metadata for ${name}`;
    const key = JSON.stringify([name, platform]);
    const loading =
      this.#loading.get(key) ?? this.vertices.during(step, () => this.#load(name, platform), ['metadata', key]);
    this.#loading.set(key, loading);
    this.#byName.set(name, loading);
    try {
      return await loading;
    } catch (error) {
      if (this.signal.aborted) throw error;
      const { kind, message, code } = asEngineError(error);
      const explained = new EngineError(
        kind,
        `${written}: failed to resolve source metadata for ${name}: ${message}`,
        code === undefined ? { cause: error } : { code, cause: error },
      );
      throw blamed(explained, { vertex: vertexDigest(['metadata', key]), lines });
    }
  }

  /** Returns an image that was asked for by this name, for any platform; undefined: it is not here. */
  async loaded(name: string): Promise<Image | undefined> {
    return this.#byName.get(name)?.catch(() => undefined);
  }

  async #load(name: string, platform: Platform | undefined): Promise<Image> {
    const { deps, request, layers } = this.tools;
    const image = await baseImage(deps, { name, platform, onLine: () => undefined }, request, this.signal);
    const letGo = deps.images.hold(image.id);
    this.tools.atEnd(async () => letGo());
    if (image.topLayer !== undefined) layers.hold(image.topLayer);
    return image;
  }
}

/** Returns the step that gives the files of an image. */
export function imageStep(name: string, image: Image, label: string, lines: LineRange | undefined): PlannedStep {
  const { topLayer } = image;
  const operation: Operation = {
    identity: ['image', topLayer ?? null],
    description: `pulled from ${name}`,
    isImage: true,
    content: () => Promise.resolve(null),
    perform: () => Promise.resolve({ layer: topLayer }),
  };
  return newStep({ name: `${label}FROM ${name}`, operation, parent: undefined, sources: [], lines, isFresh: false });
}
