/** Where a daemon keeps its data, found and locked before anything else is made. */
import type { IdMaps } from '../ports/id-maps.js';
import type { Reserve } from '../sys/files/reserve.js';

/** The directories of this daemon, which exist and are its own. */
export interface Roots {
  readonly dataRoot: string;
  readonly execRoot: string;
  /** Where the supervisor remembers tasks, whoever their users are: those of other maps must be ended by it. */
  readonly supervisorRoot: string;
  /** Reserves space on the disk of the data root for writes that cannot wait. */
  readonly reserve: Reserve;
  /** Whom the users of containers are on this host; undefined: themselves. */
  readonly idMaps: IdMaps | undefined;
}
