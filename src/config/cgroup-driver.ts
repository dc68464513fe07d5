/** Who manages the control groups of containers, as `exec-opts` and the host say: one reading for everybody. */
import type { Host } from './host.js';

export type CgroupDriver = 'cgroupfs' | 'systemd';

const OPTION = 'native.cgroupdriver=';

/** The driver that is named, right or wrong; of several the first counts, as in the known engines. */
export function namedCgroupDriver(execOpts: readonly string[]): string | undefined {
  return execOpts.find((option) => option.startsWith(OPTION))?.slice(OPTION.length);
}

/** The driver in effect. */
export function cgroupDriver(execOpts: readonly string[], { cgroupVersion, systemd }: Host): CgroupDriver {
  const named = namedCgroupDriver(execOpts);
  if (named === 'cgroupfs' || named === 'systemd') return named;
  return cgroupVersion === 2 && systemd ? 'systemd' : 'cgroupfs';
}
