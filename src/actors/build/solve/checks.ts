/** Tells of what the rules of Dockerfiles find in one that is built. */
import type { Dockerfile } from '../../../build/dockerfile/ast.js';
import { checkWithImages, factsOfImage } from '../../../build/dockerfile/check-images.js';
import { parseCheckConfig } from '../../../build/dockerfile/checks.js';
import { shownWarning } from '../../../build/dockerfile/early-warnings.js';
import { IgnoreMatcher } from '../../../build/dockerfile/ignore-file.js';
import type { Platform } from '../../../build/dockerfile/platform.js';
import type { BuildRequest } from '../../../ports/build.js';
import type { BaseImages } from './base.js';

const CONFIG_ARG = 'BUILDKIT_DOCKERFILE_CHECK';

export interface CheckedBuild {
  readonly dockerfile: Dockerfile;
  readonly request: BuildRequest;
  readonly host: Platform;
  /** The one that is built for. */
  readonly platform: Platform;
  readonly images: BaseImages;
  readonly ignore: readonly string[];
}

/**
 * Warns about the stages that are built. All images have been loaded.
 * @throws DockerfileError when the Dockerfile or the client wants warnings to be errors.
 */
export async function checkBuild({ dockerfile, request, host, platform, images, ignore }: CheckedBuild): Promise<void> {
  const { observer, buildArgs, target, namedContexts } = request;
  const config = buildArgs.get(CONFIG_ARG);
  const options = {
    target,
    buildArgs,
    host,
    buildPlatform: host,
    targetPlatform: platform,
    hasContext: (key: string) => namedContexts.has(key),
    allStages: false,
    ignore: new IgnoreMatcher(ignore),
    ...(config !== undefined && { config: parseCheckConfig(config) }),
  };
  const { warnings, error } = await checkWithImages(dockerfile, options, async (source) => {
    const image = source.kind === 'image' ? await images.loaded(source.name) : undefined;
    return image && factsOfImage(image.config);
  });
  const { vertex } = request.dockerfile;
  if (vertex !== undefined) for (const warning of warnings) observer.warning(shownWarning(vertex, warning));
  if (error !== undefined) throw error;
}
