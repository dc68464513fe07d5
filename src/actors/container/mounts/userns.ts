/** The user namespaces of containers. */
import { readlinkSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { conflict, internal } from '../../../errors/engine-error.js';
import type { IdMaps, Owner } from '../../../ports/id-maps.js';
import { ownsSandbox } from '../../../runtime/namespaces.js';
import { ownIdCount } from '../../../runtime/userns-mode.js';
import { rootOwner } from '../../../sys/users/id-maps.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';

type UsernsDeps = Pick<ContainerDeps, 'idMaps' | 'layers'>;

/** Returns the id maps of a container's own user namespace; undefined for a container that has the host's. */
export function usernsMaps(
  { idMaps, layers }: UsernsDeps,
  { id, hostConfig: { UsernsMode } }: ContainerRecord,
): IdMaps | undefined {
  const own = layers.mapsOf(id);
  if (own) return own;
  // Without them it would have the host's.
  if (ownIdCount(UsernsMode) !== undefined) throw internal(`container ${id} has lost its users`, { code: 'OWN_USERS' });
  return UsernsMode === 'host' ? undefined : idMaps;
}

/** Returns the host's ids of the owner of what the daemon makes for a container. */
export function filesRoot(deps: UsernsDeps, { id }: ContainerRecord): Owner {
  return rootOwner(deps.layers.mapsOf(id) ?? deps.idMaps);
}

/**
 * Returns the user namespace to which the joined namespaces of other containers belong; undefined when none is joined.
 * @param donorOf gives the running container that a mode names.
 * @throws EngineError conflict when it is the host's, or when there are several.
 */
export function sharedUserns(
  deps: UsernsDeps,
  record: ContainerRecord,
  donorOf: (mode: string, kind: string) => ContainerRecord,
): string | undefined {
  const maps = usernsMaps(deps, record);
  if (!maps) return undefined;
  const { NetworkMode, IpcMode, PidMode } = record.hostConfig;
  const donors = [
    [ownsSandbox(record) ? '' : NetworkMode, 'network'],
    [IpcMode, 'IPC'],
    [PidMode, 'PID'],
  ].flatMap(([mode = '', kind = '']) => (mode.startsWith('container:') ? [donorOf(mode, kind)] : []));
  const paths = donors.map(({ state }) => `/proc/${state.pid}/ns/user`);
  const namespaces = new Set(paths.map(namespaceAt));
  if (namespaces.has(namespaceAt('/proc/self/ns/user')))
    throw conflict(
      'cannot share namespaces of a container in the user namespace of the host: run both with --userns=host',
      { code: 'USER_NAMESPACE' },
    );
  // The files of each container are shown for its own users.
  if (namespaces.size > 1 || !donors.every((donor) => isDeepStrictEqual(usernsMaps(deps, donor), maps)))
    throw conflict('cannot share namespaces of containers in different user namespaces', { code: 'USER_NAMESPACE' });
  return paths[0];
}

function namespaceAt(path: string): string {
  try {
    return readlinkSync(path);
  } catch (error) {
    throw conflict('cannot share namespaces of a container that has ended', { code: 'USER_NAMESPACE', cause: error });
  }
}
