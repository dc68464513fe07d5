/** Builds that ask for more than there is are refused before anything is made: the result would be another one. */
import { notImplemented } from '../../errors/engine-error.js';
import type { BuildRequest } from '../../ports/build.js';
import { parsePlatform } from '../../registry/platform.js';

interface Host {
  readonly os: string;
  readonly architecture: string;
}

/** @throws EngineError not-implemented for what would be left out otherwise. */
export function refuseOthers({ platforms }: BuildRequest, { os, architecture }: Host): void {
  const other = platforms.find((platform) => {
    const wanted = parsePlatform(platform);
    return wanted.os !== os || wanted.architecture !== architecture;
  });
  if (other !== undefined) throw notImplemented(`this engine builds for ${os}/${architecture}, not for ${other}, yet`);
}
