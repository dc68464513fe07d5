/** Reads the Dockerfile of a classic build, and finds its stages. */
import type { Dockerfile } from '../../build/dockerfile/ast.js';
import { readClassicDockerfile } from '../../build/dockerfile/parse.js';
import { StageGraph } from '../../build/dockerfile/stage-graph.js';
import type { BuildRequest } from '../../ports/build.js';
import { inTurns } from '../../text/turns.js';
import { buildHost } from './build-host.js';
import { type TargetPlatform, targetPlatform } from './target-platform.js';

export interface ClassicPlan {
  readonly dockerfile: Dockerfile;
  readonly graph: StageGraph;
  readonly platform: TargetPlatform;
}

/** @throws DockerfileError */
export async function planClassic(request: BuildRequest, signal: AbortSignal): Promise<ClassicPlan> {
  const dockerfile = await readClassicDockerfile(request.dockerfile, signal);
  const platform = targetPlatform(request);
  const host = buildHost();
  const options = {
    target: request.target,
    isClassic: true,
    buildArgs: request.buildArgs,
    host,
    buildPlatform: host,
    targetPlatform: platform,
    hasContext: () => false,
  };
  return { dockerfile, graph: await inTurns(StageGraph.parts(dockerfile, options), signal), platform };
}
