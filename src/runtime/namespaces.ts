/** Decides which kernel namespaces a container gets, joins or shares with the host. */
import { internal } from '../errors/engine-error.js';
import type { SpecInput } from '../ports/runtime.js';
import type { OciNamespace } from './oci-types.js';

/** Tells whether a container has its own network namespace; with `NetworkDisabled` it has one in every mode. */
export function ownsSandbox({
  config,
  hostConfig: { NetworkMode: mode },
}: Pick<SpecInput, 'config' | 'hostConfig'>): boolean {
  return config.NetworkDisabled === true || (mode !== 'host' && !mode.startsWith('container:'));
}

export function buildNamespaces(
  { hostConfig, netnsPath, joins = {}, userns }: SpecInput,
  cgroupNamespaces: boolean,
): OciNamespace[] {
  const namespaces: OciNamespace[] = [{ type: 'mount' }];
  if (userns) namespaces.push({ type: 'user', ...(joins.user === undefined ? {} : { path: joins.user }) });
  if (netnsPath !== undefined) namespaces.push({ type: 'network', path: netnsPath });
  // The network namespace must belong to the container's user namespace, so it cannot be made before that.
  else if (userns) namespaces.push({ type: 'network' });
  const add = (type: 'ipc' | 'pid', mode: string): void => {
    if (mode === 'host') return;
    const path = joins[type];
    if (mode.startsWith('container:') && path === undefined)
      throw internal(`no ${type} namespace to join for mode ${mode}`);
    namespaces.push(path === undefined ? { type } : { type, path });
  };
  if (hostConfig.UTSMode !== 'host') namespaces.push({ type: 'uts' });
  add('pid', hostConfig.PidMode);
  add('ipc', hostConfig.IpcMode);
  if (hostConfig.CgroupnsMode === 'private' && cgroupNamespaces) namespaces.push({ type: 'cgroup' });
  return namespaces;
}
