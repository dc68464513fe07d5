/** Contract of `userns-remap`: maps users and groups of containers to those of this host. */

/** Maps `count` ids from `containerId` on to those from `hostId` on. */
export interface IdRange {
  readonly containerId: number;
  readonly hostId: number;
  readonly count: number;
}

/** The ranges, ordered by container id, without gaps from 0 on. */
export interface IdMaps {
  readonly uids: readonly IdRange[];
  readonly gids: readonly IdRange[];
}

/** Numbers of a user and a group, of the host or of a container. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}
