/** Parts that the plans of one build share, whichever platform each is for. */
import type { Dockerfile } from '../../../build/dockerfile/ast.js';
import { BaseImages } from './base.js';
import { ClientContext, loadIgnoreFile, MAIN } from './contexts.js';
import { ContextDirectories } from './context-directories.js';
import { ContextLayouts } from './context-layouts.js';
import { PlanBudget } from './plan-budget.js';
import type { SolveTools } from './tools.js';
import type { Vertices } from './vertices.js';

export class PlanInputs {
  readonly images: BaseImages;
  readonly main: ClientContext;
  readonly directories: ContextDirectories;
  readonly layouts: ContextLayouts;
  #ignore: Promise<readonly string[]> | undefined;
  readonly budget = new PlanBudget();
  readonly usedArgs = new Set<string>();

  /** @param isMulti is set when the build is for several platforms: names of steps tell theirs then. */
  constructor(
    readonly tools: SolveTools,
    readonly dockerfile: Dockerfile,
    private readonly vertices: Vertices,
    readonly signal: AbortSignal,
    readonly isMulti: boolean,
  ) {
    const { request } = tools;
    this.images = new BaseImages(tools, vertices, signal, isMulti);
    this.directories = new ContextDirectories(vertices, request.observer);
    this.layouts = new ContextLayouts(tools, vertices, signal);
    const names = { step: '[internal] load build context', source: MAIN };
    this.main = new ClientContext(request.context, names, () => this.ignore());
  }

  /** Loads the patterns of the ignore file, once. As with BuildKit, a build that cannot begin shows no step for it. */
  ignore(): Promise<readonly string[]> {
    this.#ignore ??= loadIgnoreFile(this.tools.request, this.vertices);
    return this.#ignore;
  }
}
