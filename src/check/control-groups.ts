/** The control groups: which limits of containers would hold. */
import type { HostFacts } from '../runtime/host-facts.js';
import { type Row, row } from './row.js';

export function controlGroupRows({ cgroup, systemd }: HostFacts): Row[] {
  const limits: readonly (readonly [name: string, isThere: boolean])[] = [
    ['memory', cgroup.memoryLimit],
    ['swap', cgroup.swapLimit],
    ['cpu', cgroup.cpuQuota],
    ['cpuset', cgroup.cpuset !== undefined],
    ['pids', cgroup.pids],
    ['io', cgroup.blkioThrottle],
  ];
  const names = (isThere: boolean): string =>
    limits.flatMap(([name, has]) => (has === isThere ? [name] : [])).join(', ');
  const missing = names(false);
  // Without these a container can take the whole machine.
  const isLoose = !cgroup.memoryLimit || !cgroup.pids || !cgroup.cpuQuota;
  return [
    cgroup.version === 2
      ? row('cgroup version', 'ok', `2${systemd ? ', with systemd' : ''}`)
      : row('cgroup version', 'note', '1, which the kernel and systemd are about to drop'),
    missing === ''
      ? row('cgroup limits', 'ok', names(true))
      : row('cgroup limits', isLoose ? 'warning' : 'note', `${names(true) || 'none'}; missing: ${missing}`),
  ];
}
