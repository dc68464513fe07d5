/** Reads a container's counters from a hierarchy of cgroups. Each version of cgroups has its implementation. */
import type { ContainerUsage, CpuUsage } from '../ports/stats.js';
import type { KeptFiles } from './kept-files.js';

export interface CgroupUsage extends Omit<ContainerUsage, 'readAt' | 'cpu' | 'networks'> {
  readonly cpu: Omit<CpuUsage, 'systemNs' | 'onlineCpus'>;
}

export interface CgroupReader {
  /**
   * Reads the counters. `group` returns the path of the group in the hierarchy of a controller ('' is the unified one).
   * Undefined: the group is gone.
   */
  read(group: (controller: string) => string | undefined, files: KeptFiles): CgroupUsage | undefined;
}
