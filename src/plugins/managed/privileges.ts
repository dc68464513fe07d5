/** Privileges: a plugin may do these things on the host if whoever installs it grants them. */
import { invalid } from '../../errors/engine-error.js';
import type { PluginConfig, PluginMount, PluginPrivilege } from '../../ports/managed-plugin.js';

/** Networks that lead nowhere by themselves. */
const OWN_NETWORKS = new Set(['', 'null', 'bridge']);

/** Returns the privileges in the order in which clients show them. */
export function privilegesOf({ Network, IpcHost, PidHost, Mounts, Linux }: PluginConfig): PluginPrivilege[] {
  const one = (Name: string, Description: string, Value: readonly string[]): PluginPrivilege[] => [
    { Name, Description, Value },
  ];
  return [
    ...(OWN_NETWORKS.has(Network.Type) ? [] : one('network', 'permissions to access a network', [Network.Type])),
    ...(IpcHost ? one('host ipc namespace', 'allow access to host ipc namespace', ['true']) : []),
    ...(PidHost ? one('host pid namespace', 'allow access to host pid namespace', ['true']) : []),
    ...(Mounts ?? []).flatMap((mount) =>
      mount.Source === null ? [] : one('mount', 'host path to mount', placeOf(mount, mount.Source)),
    ),
    ...(Linux.Devices ?? []).flatMap(({ Path }) =>
      Path === null ? [] : one('device', 'host device to access', [Path]),
    ),
    ...(Linux.AllowAllDevices ? one('allow-all-devices', "allow 'rwm' access to all devices", ['true']) : []),
    ...(Linux.Capabilities !== null && Linux.Capabilities.length > 0
      ? one('capabilities', 'list of additional capabilities required', Linux.Capabilities)
      : []),
  ];
}

const BINDS = new Set(['', 'none', 'bind']);

/**
 * A bind mount shows its path. What another type of file system shows may be in its options, such as the directories
 * below an overlay, so whoever grants it sees them.
 */
function placeOf({ Type, Options }: PluginMount, source: string): string[] {
  return BINDS.has(Type) ? [source] : [source, `type=${Type}`, ...(Options ?? []).map((option) => `option=${option}`)];
}

/** Compares what is needed with what was granted, in any order. @throws EngineError invalid `incorrect privileges`. */
export function checkGranted(config: PluginConfig, granted: readonly PluginPrivilege[]): void {
  const keys = (all: readonly PluginPrivilege[]): string =>
    JSON.stringify(all.map(({ Name, Value }) => JSON.stringify([Name, [...Value].sort()])).sort());
  if (keys(privilegesOf(config)) !== keys(granted))
    throw invalid('incorrect privileges', { code: 'PLUGIN_PRIVILEGES' });
}
