/** Says where a container's cgroup is (engine configuration `cgroup-parent`). */
import { dirname, join } from 'node:path';

export type CgroupDriver = 'cgroupfs' | 'systemd' | 'none';

export interface CgroupPlacement {
  readonly driver: CgroupDriver;
  /** Value of the container or of the daemon; '' means the driver's default. */
  readonly parent: string;
  readonly id: string;
  readonly version: 1 | 2;
  /**
   * The daemon's own cgroup. A cgroupfs parent without a leading slash is relative to it on version 1, and to the one
   * above it on version 2, where a group that has processes cannot have groups with controllers.
   */
  readonly ownCgroup?: string;
}

/**
 * Returns `cgroupsPath` of the OCI spec. It is absolute, or on version 1 relative to the supervisor's cgroup in each
 * controller, because these may differ. For systemd it is `slice:prefix:name`, which names the scope
 * `engine-<id>.scope`. It is '' where containers get no group of their own.
 */
export function cgroupsPathFor({ driver, parent, id, version, ownCgroup = '/' }: CgroupPlacement): string {
  if (driver === 'none') return '';
  if (driver === 'systemd') return `${parent || 'system.slice'}:engine:${id}`;
  // The path is resolved from the root first, so that no parent leads above the group that it is relative to.
  if (version === 1 && parent !== '' && !parent.startsWith('/')) return join('/', parent, id).slice(1);
  return join(parentCgroup({ driver, parent, version, ownCgroup }), id);
}

/**
 * Returns the absolute path of the cgroup that holds the containers' own; a slice is below those that its name lists
 * (systemd.slice(5)).
 */
export function parentCgroup({ driver, parent, version, ownCgroup = '/' }: Omit<CgroupPlacement, 'id'>): string {
  if (driver === 'systemd') {
    const parts = (parent || 'system.slice').replace(/\.slice$/, '').split('-');
    return `/${parts.map((_, index) => `${parts.slice(0, index + 1).join('-')}.slice`).join('/')}`;
  }
  const base = parent || '/engine';
  const origin = version === 2 ? dirname(ownCgroup) : ownCgroup;
  return join(base.startsWith('/') ? '/' : origin, join('/', base));
}
