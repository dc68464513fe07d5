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
  /**
   * Maps the owners of all files, of images, volumes and containers, to users of this host: they are kept like that in
   * a data root of their own. Undefined: they are kept as images have them.
   */
  readonly idMaps: IdMaps | undefined;
  /**
   * Maps the users of containers that ask for no others, which are shown files that are kept as images have them.
   * Never together with `idMaps`.
   */
  readonly shownMaps: IdMaps | undefined;
}
