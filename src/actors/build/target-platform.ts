/** The platform that a build makes an image for. */
import { notImplemented } from '../../errors/engine-error.js';
import type { BuildRequest } from '../../ports/build.js';
import { parsePlatform } from '../../registry/platform.js';
import { buildHost } from './build-host.js';

export type TargetPlatform = ReturnType<typeof buildHost>;

/** @throws EngineError invalid for what is no platform; not-implemented for what this engine cannot build. */
export function targetPlatform({ platforms }: Pick<BuildRequest, 'platforms'>): TargetPlatform {
  const host = buildHost();
  const [written, ...others] = platforms;
  if (others.length > 0)
    throw notImplemented('this engine builds for one platform at a time: give each --platform a build of its own');
  if (written === undefined) return host;
  const wanted = parsePlatform(written);
  if (wanted.os !== host.os) throw notImplemented(`this engine builds for ${host.os}, not for ${written}`);
  return wanted.architecture === host.architecture ? host : { ...wanted, osVersion: '' };
}

/** Returns the platform that base images must have; undefined for the host's: then one that is here will do. */
export function basePlatform(target: TargetPlatform): TargetPlatform | undefined {
  return target.architecture === buildHost().architecture ? undefined : target;
}
