/** How mounts below a bind mount go from the host to the container and back (man 7 mount_namespaces). */
import type { MountPoint } from './container.js';

export const PROPAGATIONS: ReadonlySet<string> = new Set([
  'shared',
  'rshared',
  'slave',
  'rslave',
  'private',
  'rprivate',
]);

/** Returns true when the client has chosen the propagation of a mount, and not the daemon. */
export function choosesPropagation({ Mode, Spec }: Pick<MountPoint, 'Mode' | 'Spec'>): boolean {
  return (Spec?.BindOptions?.Propagation ?? '') !== '' || Mode.split(',').some((word) => PROPAGATIONS.has(word));
}
