/** Where a container's cgroup is (engine configuration `cgroup-parent`). */
import { join } from 'node:path';

export type CgroupDriver = 'cgroupfs' | 'systemd';

export interface CgroupPlacement {
  readonly driver: CgroupDriver;
  /** Value of the container or of the daemon; '': the driver's default. */
  readonly parent: string;
  readonly id: string;
  /** The daemon's own cgroup: what a cgroupfs parent without a leading slash is relative to. */
  readonly ownCgroup?: string;
}

/**
 * `cgroupsPath` of the OCI spec: always absolute for cgroupfs, since the runtime resolves a relative one under the
 * supervisor's cgroup, differently per controller; `slice:prefix:name` for systemd, which names the scope
 * `engine-<id>.scope`.
 */
export function cgroupsPathFor({ driver, parent, id, ownCgroup = '/' }: CgroupPlacement): string {
  if (driver === 'systemd') return `${parent || 'system.slice'}:engine:${id}`;
  const base = parent || '/engine';
  return join(base.startsWith('/') ? '/' : ownCgroup, base, id);
}
