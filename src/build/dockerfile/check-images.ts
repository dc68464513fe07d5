/** Checks a Dockerfile whose rules depend on what its base images say: they are looked up first. */
import { inTurns } from '../../text/turns.js';
import type { Dockerfile } from './ast.js';
import { checkParts, type CheckOptions, type CheckResult, type ImageFacts } from './check.js';
import { DockerfileError } from './dockerfile-error.js';
import { formatPlatform, type Platform } from './platform.js';
import type { StageSource } from './stage-graph.js';

/** Returns what the rules want to know of an image or a named context; undefined where nothing is known. */
export type LookUpImage = (
  source: Extract<StageSource, { readonly kind: 'image' | 'context' }>,
  platform: Platform,
) => Promise<ImageFacts | undefined>;

type Found = { readonly facts: ImageFacts | undefined } | { readonly error: DockerfileError };

/** The members of an image's configuration that rules are about. */
interface Configuration {
  readonly os?: string;
  readonly architecture?: string;
  readonly variant?: string;
  readonly config?: {
    readonly Env?: readonly string[] | null;
    readonly Shell?: readonly string[] | null;
    readonly WorkingDir?: string;
    readonly OnBuild?: readonly string[] | null;
  };
}

/** Each round finds at least one more image, so there are no more rounds than sources in the file. */
export async function checkWithImages(
  dockerfile: Dockerfile,
  options: Omit<CheckOptions, 'image'>,
  lookUp: LookUpImage,
): Promise<CheckResult> {
  const known = new Map<string, Found>();
  for (;;) {
    const wanted = new Map<string, () => Promise<ImageFacts | undefined>>();
    const image: CheckOptions['image'] = (source, stage) => {
      if (source.kind !== 'image' && source.kind !== 'context') return undefined;
      const platform = stage.platform ?? options.targetPlatform;
      const key = JSON.stringify([source.kind, source.name, formatPlatform(platform)]);
      const found = known.get(key);
      if (found === undefined) wanted.set(key, () => lookUp(source, platform));
      else if ('error' in found) throw found.error;
      return found?.facts;
    };
    const result = await inTurns(checkParts(dockerfile, { ...options, image }));
    if (wanted.size === 0) return result;
    await Promise.all([...wanted].map(async ([key, look]) => known.set(key, await foundBy(look))));
  }
}

async function foundBy(look: () => Promise<ImageFacts | undefined>): Promise<Found> {
  try {
    return { facts: await look() };
  } catch (error) {
    return { error: new DockerfileError(error instanceof Error ? error.message : String(error)) };
  }
}

export function factsOfImage({ os, architecture, variant = '', config }: Configuration): ImageFacts {
  return {
    env: (config?.Env ?? []).map((entry) => {
      const sign = entry.indexOf('=');
      return sign < 0 ? [entry, ''] : [entry.slice(0, sign), entry.slice(sign + 1)];
    }),
    hasShell: (config?.Shell ?? []).length > 0,
    workdir: config?.WorkingDir || '/',
    ...(os !== undefined && architecture !== undefined && { platform: { os, architecture, variant, osVersion: '' } }),
    triggers: config?.OnBuild ?? [],
  };
}
