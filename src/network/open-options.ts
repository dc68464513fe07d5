/** Notes about a network besides its summary; they decide how the network is opened again after a restart. */

/** Says to whom a bridge belongs. */
export interface Ownership {
  /**
   * The MAC address of a bridge that the daemon makes. It is absent if an earlier version has noted only who owned the
   * bridge.
   */
  readonly mac?: string;
  /** True if the link existed before the network, and stays as it is. */
  readonly foreign: boolean;
}

export interface OpenOptions extends Ownership {
  /** True if a client has chosen the subnet, so that containers may choose addresses in it. */
  readonly chosen: boolean;
  /** For each subnet, the name that another process has for its pool. */
  readonly poolIds?: readonly string[];
}
