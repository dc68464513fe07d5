/** Says where a container's cgroup is (engine configuration `cgroup-parent`). */
import { join } from 'node:path';

export type CgroupDriver = 'cgroupfs' | 'systemd';

export interface CgroupPlacement {
  readonly driver: CgroupDriver;
  /** Value of the container or of the daemon; '' means the driver's default. */
  readonly parent: string;
  readonly id: string;
  readonly version: 1 | 2;
  /** The daemon's own cgroup, which a cgroupfs parent without a leading slash is relative to. */
  readonly ownCgroup?: string;
}

/**
 * Returns `cgroupsPath` of the OCI spec. It is absolute, or on version 1 relative to the supervisor's cgroup in each
 * controller, because these may differ. For systemd it is `slice:prefix:name`, which names the scope
 * `engine-<id>.scope`.
 */
export function cgroupsPathFor({ driver, parent, id, version, ownCgroup = '/' }: CgroupPlacement): string {
  if (driver === 'systemd') return `${parent || 'system.slice'}:engine:${id}`;
  // The path is resolved from the root first, so that no parent leads above the group that it is relative to.
  if (version === 1 && parent !== '' && !parent.startsWith('/')) return join('/', parent, id).slice(1);
  return join(parentCgroup({ driver, parent, ownCgroup }), id);
}

/**
 * Returns the absolute path of the cgroup that holds the containers' own; a slice is below those that its name lists
 * (systemd.slice(5)).
 */
export function parentCgroup({ driver, parent, ownCgroup = '/' }: Omit<CgroupPlacement, 'id' | 'version'>): string {
  if (driver === 'systemd') {
    const parts = (parent || 'system.slice').replace(/\.slice$/, '').split('-');
    return `/${parts.map((_, index) => `${parts.slice(0, index + 1).join('-')}.slice`).join('/')}`;
  }
  const base = parent || '/engine';
  return join(base.startsWith('/') ? '/' : ownCgroup, join('/', base));
}
