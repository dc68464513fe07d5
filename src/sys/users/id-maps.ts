/** Maps ids of containers to those of the host, and back. */
import { invalid } from '../../errors/engine-error.js';
import type { IdMaps, IdRange, Owner } from '../../ports/id-maps.js';

/** The kernel shows this for an id that is not mapped (proc(5), `overflowuid`). */
const OVERFLOW_ID = 65_534;

/** Returns the owner on the host. @throws EngineError invalid `Container ID N cannot be mapped to a host ID`. */
export function hostOwner({ uids, gids }: IdMaps, { uid, gid }: Owner): Owner {
  return { uid: hostId(uids, uid), gid: hostId(gids, gid) };
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
  if (!range) throw invalid(`Container ID ${id} cannot be mapped to a host ID`, { code: 'ID_NOT_MAPPED' });
  return range.hostId + id - range.containerId;
}

function containerId(ranges: readonly IdRange[], id: number): number {
  const range = ranges.find(({ hostId: first, count }) => id >= first && id < first + count);
  return range ? range.containerId + id - range.hostId : OVERFLOW_ID;
}
