/** Contexts that the client gives names: they stand for images and stages. */
import type { LineRange } from '../../../build/dockerfile/ast.js';
import { normalizeReference } from '../../../build/dockerfile/reference.js';
import { invalid } from '../../../errors/engine-error.js';
import type { NamedContext, PlatformResult } from '../../../ports/build.js';
import type { TargetPlatform } from '../target-platform.js';
import { type BaseImages, imageStep } from './base.js';
import { copyOperation } from './copy.js';
import { EXPORTED, imageHistory, imageState, scratchState, type StagePlan } from './stage-plan.js';
import type { PlanInputs } from './plan-inputs.js';
import { remoteContextStep } from './remote.js';
import { newStep, type PlannedStep } from './step.js';
import type { SolveTools } from './tools.js';

/** A copy of everything, into nothing. */
const ALL_FILES: Parameters<typeof copyOperation>[0] = {
  kind: 'COPY',
  keyword: 'COPY',
  original: 'COPY / /',
  lines: { start: 0, end: 0 },
  comments: [],
  sources: ['/'],
  inlineFiles: [],
  destination: '/',
  chown: '',
  chmod: '',
  link: false,
  exclude: [],
  flags: [],
  from: '',
  parents: false,
};

type Begin = Omit<StagePlan, 'scope'>;

export class NamedContexts {
  constructor(
    private readonly tools: SolveTools,
    private readonly inputs: Pick<PlanInputs, 'directories' | 'layouts'>,
    /** For stages that begin with nothing but files. */
    private readonly platform: TargetPlatform,
    /** Images must be for this one; undefined: one that is here will do. */
    private readonly imagePlatform: TargetPlatform | undefined,
  ) {}

  /** Returns what a stage based on a context begins with. */
  async base(name: string, images: BaseImages, lines: LineRange): Promise<Begin> {
    const context = this.#get(name);
    if (context.kind === 'image') {
      const { reference } = context;
      const wanted = { ...imageOf(reference), platform: this.imagePlatform, lines, context: name };
      const image = await images.load(wanted);
      const last = imageStep(image, `[context ${name}] `, lines, reference);
      return { state: imageState(image.config), last, history: imageHistory(image.config) };
    }
    if (context.kind === 'layout') {
      const image = await this.inputs.layouts.load(name, context, this.platform, lines);
      return { state: imageState(image.config), last: image.step, history: imageHistory(image.config) };
    }
    if (context.kind === 'result') {
      const { topLayer } = context.result;
      if (topLayer !== undefined) this.tools.layers.hold(topLayer);
      return resultBegin(name, context.result);
    }
    const files = await this.files(name, images, lines);
    const state = scratchState(this.platform);
    if (files === undefined) return { state, last: undefined, history: [] };
    const last = newStep({
      name: `[context ${name}] copy files`,
      operation: copyOperation(ALL_FILES, state, [{ source: 0, paths: ['/'] }]),
      parent: undefined,
      sources: [files],
      lines,
      isFresh: false,
    });
    return { state, last, history: [{ created_by: `local source for ${name}`, comment: EXPORTED, step: last }] };
  }

  /** Returns the step that gives the files of a context; undefined: there are none. */
  async files(name: string, images: BaseImages, lines: LineRange): Promise<PlannedStep | undefined> {
    const context = this.#get(name);
    switch (context.kind) {
      case 'tree':
        // All of it is brought, because the paths that are read are not known here.
        return this.inputs.directories.get(name, context.context).step(['/']);
      case 'remote':
        return remoteContextStep(name, context.url, lines);
      default:
        return (await this.base(name, images, lines)).last;
    }
  }

  #get(name: string): NamedContext {
    const context = this.tools.request.namedContexts.get(name);
    if (context === undefined) throw invalid(`there is no context ${name}`);
    return context;
  }
}

function imageOf(reference: string): { readonly name: string; readonly written: string } {
  return { name: normalizeReference(reference), written: reference };
}

function resultBegin(name: string, { config: document, topLayer }: PlatformResult): Begin {
  const { config = {}, author = '', os, architecture, variant, history = [] } = document;
  const state = { ...scratchState({ os, architecture, variant: '', osVersion: '' }), config, author, variant };
  if (topLayer === undefined) return { state, last: undefined, history };
  const last = newStep({
    name: `[context ${name}] FROM ${name}`,
    operation: {
      identity: ['result', topLayer],
      recipe: { operation: { source: { identifier: `input:${name}` } } },
      content: () => Promise.resolve(null),
      perform: () => Promise.resolve({ layer: topLayer }),
    },
    parent: undefined,
    sources: [],
    lines: undefined,
    isFresh: false,
  });
  return { state, last, history };
}
