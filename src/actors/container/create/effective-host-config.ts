/**
 * The settings that are in force for a container: those that its client asked for, and those that the daemon's options
 * said when it was created.
 */
import type { HostConfig } from '../../../ports/container.js';
import { parseSecurityOptions } from '../../../runtime/security-options.js';
import type { ContainerRecord } from '../container.record.js';

export function effectiveHostConfig({
  hostConfig,
  defaults,
}: Pick<ContainerRecord, 'hostConfig' | 'defaults'>): HostConfig {
  if (!defaults) return hostConfig;
  const own = hostConfig.Ulimits ?? [];
  const others = defaults.ulimits.filter(({ Name }) => own.every((ulimit) => ulimit.Name !== Name));
  const options = hostConfig.SecurityOpt ?? [];
  const isSilent = defaults.noNewPrivileges && parseSecurityOptions(options).noNewPrivileges === undefined;
  return {
    ...hostConfig,
    ...(others.length > 0 ? { Ulimits: [...own, ...others] } : {}),
    ...(isSilent ? { SecurityOpt: [...options, 'no-new-privileges'] } : {}),
    ...(defaults.init && hostConfig.Init === undefined ? { Init: true } : {}),
  };
}
