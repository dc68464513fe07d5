/** The platforms that a build makes an image for. */
import { invalid, notImplemented } from '../../errors/engine-error.js';
import type { BuildRequest } from '../../ports/build.js';
import { formatPlatform, parsePlatform } from '../../registry/platform.js';
import { buildHost } from './build-host.js';

export type TargetPlatform = ReturnType<typeof buildHost>;

/** More in one build are refused: each has a plan of its own. */
const MAX_PLATFORMS = 50;

/**
 * Returns the platforms of a request, each once: the host's when it names none.
 * @throws EngineError invalid for what is no platform; not-implemented for what this engine cannot build.
 */
export function targetPlatforms({ platforms }: Pick<BuildRequest, 'platforms'>): TargetPlatform[] {
  if (platforms.length > MAX_PLATFORMS) throw invalid(`a build is for at most ${MAX_PLATFORMS} platforms`);
  const found = new Map<string, TargetPlatform>();
  for (const written of platforms) {
    const target = targetOf(written);
    found.set(formatPlatform(target), target);
  }
  return found.size === 0 ? [buildHost()] : [...found.values()];
}

/** Returns the only platform of a request. @throws EngineError as above, and not-implemented for several. */
export function targetPlatform(request: Pick<BuildRequest, 'platforms'>): TargetPlatform {
  const [target = buildHost(), ...others] = targetPlatforms(request);
  if (others.length > 0)
    throw notImplemented('the classic builder builds for one platform at a time; BuildKit builds for several');
  return target;
}

function targetOf(written: string): TargetPlatform {
  const host = buildHost();
  const wanted = parsePlatform(written);
  if (wanted.os !== host.os) throw notImplemented(`this engine builds for ${host.os}, not for ${written}`);
  const isHost = wanted.architecture === host.architecture && wanted.variant === '';
  return isHost ? host : { ...wanted, osVersion: '' };
}

/** Returns the platform that base images must have; undefined for the host's: then one that is here will do. */
export function basePlatform(target: TargetPlatform): TargetPlatform | undefined {
  return target.architecture === buildHost().architecture ? undefined : target;
}
