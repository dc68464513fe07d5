/** What is noted about a network beside its summary, and decides how it is opened again after a restart. */

/** Says to whom a bridge belongs. */
export interface Ownership {
  /**
   * The MAC address of a bridge that the daemon makes. It is absent if an earlier version has noted only who owned the
   * bridge.
   */
  readonly mac?: string;
  /** The link existed before the network: it stays as it is. */
  readonly foreign: boolean;
}

export interface OpenOptions extends Ownership {
  /** A client has chosen the subnet, so that containers may choose addresses in it. */
  readonly chosen: boolean;
  /** By subnet, what another process calls the pool that it is from. */
  readonly poolIds?: readonly string[];
}
