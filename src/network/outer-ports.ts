/**
 * Ports of the machine, for a daemon whose own network namespace is another one: somebody outside of it must listen
 * and pass connections on.
 */
import type { PublishedPort } from '../ports/network.js';

export interface OuterPort {
  /** Closes the port on the machine. Never fails: what cannot be closed is reported. */
  close(): Promise<void>;
}

export interface OuterPorts {
  /** Finds out who listens, and which ports an earlier run of the daemon has left open. */
  start(): Promise<void>;
  /**
   * Opens a port that leads to the container, or takes over the one that an earlier run has opened. Undefined: the
   * machine's ports lead into the namespace by themselves.
   * @throws EngineError internal; code PORT_IN_USE: another number may be free; NO_FAMILY: the machine has no such
   * address.
   */
  open(port: PublishedPort, containerIp: string): Promise<OuterPort | undefined>;
  /** Closes ports of an earlier run that no container has taken over. */
  settle(): Promise<void>;
}
