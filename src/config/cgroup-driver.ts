/**
 * Tells which driver manages the control groups of containers, as `exec-opts` and the host say: every part of the
 * daemon asks here, so that all agree.
 */
import type { Host } from './host.js';

export type CgroupDriver = 'cgroupfs' | 'systemd';

const OPTION = 'native.cgroupdriver=';

/** Returns the driver that is named, right or wrong; if several are named the first counts, as in the known engines. */
export function namedCgroupDriver(execOpts: readonly string[]): string | undefined {
  return execOpts.find((option) => option.startsWith(OPTION))?.slice(OPTION.length);
}

/** Returns the driver in effect. */
export function cgroupDriver(execOpts: readonly string[], { cgroupVersion, systemd }: Host): CgroupDriver {
  const named = namedCgroupDriver(execOpts);
  if (named === 'cgroupfs' || named === 'systemd') return named;
  return cgroupVersion === 2 && systemd ? 'systemd' : 'cgroupfs';
}
