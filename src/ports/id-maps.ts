/** How the users and groups of containers are those of this host: contract of `userns-remap`. */

/** `count` ids from `containerId` on are those from `hostId` on. */
export interface IdRange {
  readonly containerId: number;
  readonly hostId: number;
  readonly count: number;
}

/** Ordered by container id, from 0 on without gaps. */
export interface IdMaps {
  readonly uids: readonly IdRange[];
  readonly gids: readonly IdRange[];
}

/** Numbers of a user and a group, of the host or of a container. */
export interface Owner {
  readonly uid: number;
  readonly gid: number;
}
