/** Reads a container's counters from a hierarchy of cgroups. Each version of cgroups has its implementation. */
import type { ContainerUsage, CpuUsage } from '../ports/stats.js';
import type { KeptFiles } from './kept-files.js';
import type { GroupPath } from './kept-groups.js';

export interface CgroupUsage extends Omit<ContainerUsage, 'readAt' | 'cpu' | 'networks'> {
  readonly cpu: Omit<CpuUsage, 'systemNs' | 'onlineCpus'>;
}

export interface CgroupReader {
  /** Controllers whose groups are read; '' is the unified hierarchy. */
  readonly controllers: readonly string[];
  /** Reads the counters. Undefined: the group is gone. */
  read(group: GroupPath, files: KeptFiles): CgroupUsage | undefined;
}
