/** Finds the places where the control groups of this host are mounted. */

export interface CgroupMounts {
  /** Mount point of each version 1 controller. */
  readonly controllers: ReadonlyMap<string, string>;
  readonly unified: string | undefined;
}

const CONTROLLERS = new Set([
  'memory',
  'cpu',
  'cpuacct',
  'cpuset',
  'blkio',
  'pids',
  'devices',
  'freezer',
  'hugetlb',
  'net_cls',
  'net_prio',
  'perf_event',
  'rdma',
  'misc',
]);

/** The cgroup mounts of /proc/PID/mountinfo (man 5 proc). */
export function parseCgroupMounts(mountinfo: string): CgroupMounts {
  const controllers = new Map<string, string>();
  let unified: string | undefined;
  for (const line of mountinfo.split('\n')) {
    const [before = '', after = ''] = line.split(' - ');
    const mountPoint = before.split(' ')[4];
    const [type, , options = ''] = after.split(' ');
    if (mountPoint === undefined) continue;
    if (type === 'cgroup2') unified ??= mountPoint;
    if (type !== 'cgroup') continue;
    for (const name of options.split(',')) {
      if (CONTROLLERS.has(name) && !controllers.has(name)) controllers.set(name, mountPoint);
    }
  }
  return { controllers, unified };
}
