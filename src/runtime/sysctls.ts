/** Chooses kernel parameters of a container's namespaces. */
import type { IdMaps } from '../ports/id-maps.js';
import type { SpecInput } from '../ports/runtime.js';
import type { HostFacts } from './host-facts.js';
import { ownsSandbox } from './namespaces.js';

/** In its own network namespace, even an unprivileged user may bind low ports and ping. */
function networkDefaults(userns: IdMaps | undefined, hostGroups: number): Readonly<Record<string, string>> {
  // The kernel refuses groups that the user namespace lacks.
  const groups = userns ? userns.gids.reduce((sum, { count }) => sum + count, 0) : hostGroups;
  return {
    'net.ipv4.ip_unprivileged_port_start': '0',
    'net.ipv4.ping_group_range': `0 ${Math.min(groups, 2 ** 31) - 1}`,
  };
}

export function buildSysctls(
  { config, hostConfig, userns }: SpecInput,
  { groups }: Pick<HostFacts, 'groups'>,
): Record<string, string> {
  return {
    ...(ownsSandbox({ config, hostConfig }) ? networkDefaults(userns, groups) : {}),
    // OCI 1.0 has no field for it.
    ...(config.Domainname !== '' && hostConfig.UTSMode !== 'host' ? { 'kernel.domainname': config.Domainname } : {}),
    ...hostConfig.Sysctls,
  };
}
