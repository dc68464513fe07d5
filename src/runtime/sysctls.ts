/** Chooses kernel parameters of a container's namespaces. */
import type { IdMaps } from '../ports/id-maps.js';
import type { SpecInput } from '../ports/runtime.js';
import { ownsSandbox } from './namespaces.js';

/** In its own network namespace, even an unprivileged user may bind low ports and ping. */
function networkDefaults(userns: IdMaps | undefined): Readonly<Record<string, string>> {
  // The kernel refuses groups that the user namespace lacks.
  const lastGroup = userns ? userns.gids.reduce((sum, { count }) => sum + count, 0) - 1 : 2 ** 31 - 1;
  return {
    'net.ipv4.ip_unprivileged_port_start': '0',
    'net.ipv4.ping_group_range': `0 ${Math.min(lastGroup, 2 ** 31 - 1)}`,
  };
}

export function buildSysctls({ config, hostConfig, userns }: SpecInput): Record<string, string> {
  return {
    ...(ownsSandbox({ config, hostConfig }) ? networkDefaults(userns) : {}),
    // OCI 1.0 has no field for it.
    ...(config.Domainname !== '' && hostConfig.UTSMode !== 'host' ? { 'kernel.domainname': config.Domainname } : {}),
    ...hostConfig.Sysctls,
  };
}
