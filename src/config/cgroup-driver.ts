/**
 * Tells which driver manages the control groups of containers, as `exec-opts` and the host say: every part of the
 * daemon asks here, so that all agree.
 */
import type { Host } from './host.js';
import type { Values } from './options.js';

/** `none`: nobody made groups for an ordinary user, so containers have no limits. */
export type CgroupDriver = 'cgroupfs' | 'systemd' | 'none';

const OPTION = 'native.cgroupdriver=';

/** Returns the driver that is named, right or wrong; if several are named the first counts, as in the known engines. */
export function namedCgroupDriver(execOpts: readonly string[]): string | undefined {
  return execOpts.find((option) => option.startsWith(OPTION))?.slice(OPTION.length);
}

/** Returns the driver in effect. */
export function cgroupDriver({ execOpts, rootless }: Pick<Values, 'execOpts' | 'rootless'>, host: Host): CgroupDriver {
  const { cgroupVersion, systemd, userManager } = host;
  // Only version 2 lets systemd hand groups to a user, and only the user's own manager makes them.
  if (rootless) return cgroupVersion === 2 && userManager ? 'systemd' : 'none';
  const named = namedCgroupDriver(execOpts);
  if (named === 'cgroupfs' || named === 'systemd') return named;
  return cgroupVersion === 2 && systemd ? 'systemd' : 'cgroupfs';
}
