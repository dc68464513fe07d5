/** Where the files of an open volume are on this host. */

/**
 * A directory, and the way from there to the volume. Whoever keeps the files, such as a plugin, may exchange what is on
 * the way for links at any time. So it is opened as if `root` were `/` (`openNested`), never by one joined path.
 */
export interface VolumePlace {
  /** An absolute path that only the daemon and the host's administrator can change. */
  readonly root: string;
  /** '' when `root` is the volume. */
  readonly path: string;
  /**
   * Its files are the daemon's alone, and no directory of the host or of a plugin. So they are kept with the owners
   * that containers see, also for those with users of their own.
   */
  readonly isOwn?: boolean;
}
