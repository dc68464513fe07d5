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
  return join(parentCgroup({ driver, parent, ownCgroup }), id);
}

/** Absolute path of the cgroup that holds the containers' own; a slice is below those that its name lists (systemd.slice(5)). */
export function parentCgroup({ driver, parent, ownCgroup = '/' }: Omit<CgroupPlacement, 'id'>): string {
  if (driver === 'systemd') {
    const parts = (parent || 'system.slice').replace(/\.slice$/, '').split('-');
    return `/${parts.map((_, index) => `${parts.slice(0, index + 1).join('-')}.slice`).join('/')}`;
  }
  const base = parent || '/engine';
  return join(base.startsWith('/') ? '/' : ownCgroup, base);
}
