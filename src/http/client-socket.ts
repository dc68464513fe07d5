/** A hijacked connection, as handlers get it. */
import type { Socket } from 'node:net';

/** A connection that somebody has taken over. */
export interface ClientSocket extends Socket {
  /** Its descriptor until it is closed. */
  readonly fd: number;
}
