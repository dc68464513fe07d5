/** Where a daemon keeps its data, found and locked before anything else is made. */
import type { IdMaps } from '../ports/id-maps.js';
import type { Reserve } from '../sys/files/reserve.js';

/** The directories of this daemon, which exist and are its own. */
export interface Roots {
  readonly dataRoot: string;
  readonly execRoot: string;
  /**
   * The supervisor keeps its tasks in this directory, which is the same for all user maps: tasks of other maps must be
   * ended, too.
   */
  readonly supervisorRoot: string;
  /** Reserves space on the disk of the data root for writes that cannot wait. */
  readonly reserve: Reserve;
  /** Maps the users of containers to users of this host; undefined: they are the same. */
  readonly idMaps: IdMaps | undefined;
}
