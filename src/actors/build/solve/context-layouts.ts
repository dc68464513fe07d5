/** Images in directories of the client's (`oci-layout://`): each is looked at once for each platform. */
import type { LineRange } from '../../../build/dockerfile/ast.js';
import { digestOf } from '../../../build/outputs/image-documents.js';
import type { NamedContext } from '../../../ports/build.js';
import { formatPlatform } from '../../../registry/platform.js';
import { type ContentImage, resolveContent } from '../../../registry/resolve-content.js';
import { ContentLayers, readDocument } from '../content-layers.js';
import type { TargetPlatform } from '../target-platform.js';
import { blamed } from './failure.js';
import { newStep, type PlannedStep } from './step.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

type Layout = Extract<NamedContext, { kind: 'layout' }>;

export interface LayoutImage extends Pick<ContentImage, 'config'> {
  /** Gives its files. */
  readonly step: PlannedStep;
}

export class ContextLayouts {
  readonly #loading = new Map<string, Promise<ContentImage>>();

  constructor(
    private readonly tools: SolveTools,
    private readonly vertices: Vertices,
    private readonly signal: AbortSignal,
  ) {}

  /** @throws EngineError for what is no image, with the lines to blame. */
  async load(name: string, layout: Layout, platform: TargetPlatform, lines: LineRange): Promise<LayoutImage> {
    const key = `${name} ${formatPlatform(platform)}`;
    const loading = this.#loading.get(key) ?? this.#load(name, layout, platform);
    this.#loading.set(key, loading);
    try {
      const image = await loading;
      return { config: image.config, step: this.#step(name, layout, image, lines) };
    } catch (error) {
      throw this.signal.aborted ? error : blamed(error, { lines });
    }
  }

  #load(name: string, { content, digest, shown }: Layout, platform: TargetPlatform): Promise<ContentImage> {
    const step = `[context ${name}] load metadata for ${shown}`;
    const read = (one: typeof digest): Promise<Buffer> => readDocument(content, one, this.signal);
    return this.vertices.during(step, () => resolveContent(read, { digest, platform, name: shown }), [
      step,
      formatPlatform(platform),
    ]);
  }

  #step(name: string, { content, shown }: Layout, image: ContentImage, lines: LineRange): PlannedStep {
    const top = image.layers.at(-1)?.chainId;
    const known = new Map(image.layers.map((layer) => [layer.chainId, layer]));
    const sha256 = digestOf(image.configBytes).slice('sha256:'.length);
    return newStep({
      name: `[context ${name}] OCI load from client`,
      operation: {
        identity: ['image', top ?? null],
        description: `loaded from ${shown}`,
        isImage: true,
        recipe: {
          operation: { source: { identifier: `oci-layout://${shown}` } },
          material: { uri: `pkg:oci/${encodeURIComponent(name)}`, digest: { sha256 } },
        },
        content: () => Promise.resolve(null),
        perform: async ({ tools, signal }) => {
          if (top === undefined) return { layer: undefined };
          const { deps, layers } = tools;
          await new ContentLayers({ ...deps.blobParts, layers: deps.layers }, content).bring(top, known, signal);
          layers.hold(top);
          await deps.layers.release(top);
          return { layer: top };
        },
      },
      parent: undefined,
      sources: [],
      lines,
      isFresh: false,
    });
  }
}
