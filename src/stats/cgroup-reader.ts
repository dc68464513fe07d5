/** What a hierarchy of cgroups counts of a container. The two versions of cgroups each implement it. */
import type { ContainerUsage, CpuUsage } from '../ports/stats.js';

export interface CgroupUsage extends Omit<ContainerUsage, 'readAt' | 'cpu' | 'networks'> {
  readonly cpu: Omit<CpuUsage, 'systemNs' | 'onlineCpus'>;
}

export interface CgroupReader {
  /**
   * `group` gives the path of the group in the hierarchy of a controller ('': the unified one). Undefined: the group is
   * gone.
   */
  read(group: (controller: string) => string | undefined): Promise<CgroupUsage | undefined>;
}
