/** Options that this host, or this daemon, cannot fulfil: said before anything starts, never passed over in silence. */
import { readFile } from 'node:fs/promises';
import type { Config } from '../config/config.js';
import { invalid } from '../errors/engine-error.js';
import type { HostFacts } from '../runtime/host-facts.js';

/** What the only mapping of the initial user namespace looks like in /proc/self/uid_map. */
const WHOLE_RANGE = /^\s*0\s+0\s+4294967295\s*$/;

/** @throws EngineError invalid that names the option. */
export async function checkRequirements(config: Config, facts: HostFacts): Promise<void> {
  const { storageDriver, rootless, features } = config;
  if (!['', 'overlay2'].includes(storageDriver)) throw invalid(`storage-driver ${storageDriver}: this daemon has the storage driver overlay2 only`);
  if (rootless && WHOLE_RANGE.test(await readFile('/proc/self/uid_map', 'utf8'))) {
    throw invalid('rootless: the daemon must run in a user namespace of its own, which a launcher such as rootlesskit makes');
  }
  if (features['supervisor-snapshotter'] === true) throw invalid('feature supervisor-snapshotter: images and containers are kept by storage drivers only; leave the feature out or set it to false');
  if (config.cpuRtPeriodMicroseconds === 0 && config.cpuRtRuntimeMicroseconds === 0) return;
  const option = config.cpuRtRuntimeMicroseconds === 0 ? 'cpu-rt-period' : 'cpu-rt-runtime';
  if (facts.cgroup.version === 2) throw invalid(`${option} is not supported with cgroups v2`);
  if (!facts.cgroup.cpuRealtime) throw invalid(`${option}: the kernel does not support the real-time scheduler in control groups`);
}

/** What a host lacks that containers may ask for, in the words that `info` has for it. */
export function hostWarnings({ cgroup }: HostFacts, config: Config): string[] {
  const missing: readonly (readonly [has: boolean, warning: string])[] = [
    [cgroup.memoryLimit, 'WARNING: No memory limit support'],
    [cgroup.swapLimit, 'WARNING: No swap limit support'],
    [cgroup.oomKillDisable || cgroup.version === 2, 'WARNING: No oom kill disable support'],
    [cgroup.cpuQuota, 'WARNING: No cpu cfs quota support'],
    [cgroup.cpuShares, 'WARNING: No cpu shares support'],
    [cgroup.cpuset !== undefined, 'WARNING: No cpuset support'],
    [!config.selinuxEnabled, 'WARNING: selinux-enabled has no effect: this daemon applies no SELinux labels of its own'],
  ];
  return missing.flatMap(([has, warning]) => (has ? [] : [warning]));
}
