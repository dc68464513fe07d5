/** Maps ids of containers to those of the host, and back. */
import { type EngineError, invalid } from '../../errors/engine-error.js';
import type { IdMaps, IdRange, Owner } from '../../ports/id-maps.js';
import { countIds, isInUserNamespace } from './user-namespace.js';

/** The kernel shows this for an id that is not mapped (proc(5), `overflowuid`). */
const OVERFLOW_ID = 65_534;

/** Returns the owner on the host. @throws EngineError invalid `Container ID N cannot be mapped to a host ID`. */
export function hostOwner({ uids, gids }: IdMaps, { uid, gid }: Owner): Owner {
  return { uid: hostId(uids, uid), gid: hostId(gids, gid) };
}

/**
 * Returns the owner that a file of a container gets on this host; without maps it is the same, if the user namespace of
 * the daemon has it. @throws EngineError invalid `Container ID N cannot be mapped to a host ID`.
 */
export function ownerOnHost(maps: IdMaps | undefined, owner: Owner): Owner {
  if (maps) return hostOwner(maps, owner);
  if (isInUserNamespace()) {
    known ??= { uid: countIds('uid'), gid: countIds('gid') };
    if (owner.uid >= known.uid) throw unmapped(owner.uid);
    if (owner.gid >= known.gid) throw unmapped(owner.gid);
  }
  return owner;
}

/** So many ids are in the user namespace of the daemon. */
let known: Owner | undefined;

function unmapped(id: number): EngineError {
  return invalid(`Container ID ${id} cannot be mapped to a host ID`, { code: 'ID_NOT_MAPPED' });
}

/** Returns the owner in the container. An owner without an id there is nobody to it, as in the kernel. */
export function containerOwner({ uids, gids }: IdMaps, { uid, gid }: Owner): Owner {
  return { uid: containerId(uids, uid), gid: containerId(gids, gid) };
}

/** Returns the host's ids of root in containers. Without maps that is root. */
export function rootOwner(maps: IdMaps | undefined): Owner {
  return maps ? hostOwner(maps, { uid: 0, gid: 0 }) : { uid: 0, gid: 0 };
}

function hostId(ranges: readonly IdRange[], id: number): number {
  const range = ranges.find(({ containerId: first, count }) => id >= first && id < first + count);
  if (!range) throw unmapped(id);
  return range.hostId + id - range.containerId;
}

function containerId(ranges: readonly IdRange[], id: number): number {
  const range = ranges.find(({ hostId: first, count }) => id >= first && id < first + count);
  return range ? range.containerId + id - range.hostId : OVERFLOW_ID;
}
