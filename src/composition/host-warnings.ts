/** The warnings of `info` about the host. */
import type { FixedConfig } from '../config/config.js';
import type { HostFacts } from '../runtime/host-facts.js';
import { hasSeLinuxPolicy } from '../sys/security/selinux.js';
import { SNAPSHOTTER_FEATURE } from '../storage/drivers/index.js';
import { storesWithData } from '../storage/drivers/selection.js';

/** Lists features that containers may ask for and this host lacks, in the words that `info` has for them. */
export function hostWarnings({ cgroup }: HostFacts, config: FixedConfig): string[] {
  const missing: readonly (readonly [has: boolean, warning: string])[] = [
    [cgroup.memoryLimit, 'WARNING: No memory limit support'],
    [cgroup.swapLimit, 'WARNING: No swap limit support'],
    [cgroup.oomKillDisable || cgroup.version === 2, 'WARNING: No oom kill disable support'],
    [cgroup.cpuQuota, 'WARNING: No cpu cfs quota support'],
    [cgroup.cpuShares, 'WARNING: No cpu shares support'],
    [cgroup.cpuset !== undefined, 'WARNING: No cpuset support'],
    [
      !config.selinuxEnabled || hasSeLinuxPolicy(),
      'WARNING: selinux-enabled has no effect: this host has no SELinux policy',
    ],
  ];
  return missing.flatMap(([has, warning]) => (has ? [] : [warning]));
}

/** Tells which storage drivers besides the one in use have data in the data root. `place` is that of its store. */
export function otherDriverWarnings(dataRoot: string, place: string): string[] {
  const without = place === SNAPSHOTTER_FEATURE ? ` and without the feature ${SNAPSHOTTER_FEATURE}` : '';
  return storesWithData(dataRoot)
    .filter((name) => name !== place)
    .map((name) =>
      name === SNAPSHOTTER_FEATURE
        ? `WARNING: ${dataRoot} also has images and containers that are snapshots of the supervisor, which are not ` +
          `used: start the daemon with --feature ${name} to have them`
        : `WARNING: ${dataRoot} also holds images and containers of the storage driver ${name}, which are not used: ` +
          `start the daemon with --storage-driver ${name}${without} to have them`,
    );
}
