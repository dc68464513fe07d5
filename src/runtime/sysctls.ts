/** Kernel parameters of a container's namespaces. */
import type { SpecInput } from '../ports/runtime.js';

/** In a network namespace of its own even an unprivileged user may bind low ports and ping. */
const NETWORK_DEFAULTS: Readonly<Record<string, string>> = {
  'net.ipv4.ip_unprivileged_port_start': '0',
  'net.ipv4.ping_group_range': '0 2147483647',
};

export function buildSysctls({ config, hostConfig }: SpecInput): Record<string, string> {
  const ownNetwork = hostConfig.NetworkMode !== 'host' && !hostConfig.NetworkMode.startsWith('container:');
  return {
    ...(ownNetwork ? NETWORK_DEFAULTS : {}),
    // OCI 1.0 has no field for it.
    ...(config.Domainname !== '' && hostConfig.UTSMode !== 'host' ? { 'kernel.domainname': config.Domainname } : {}),
    ...hostConfig.Sysctls,
  };
}
