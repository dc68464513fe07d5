/** Figures of the running process and the kernel under it that `info` shows, asked anew each time. */
import { readdir, readFile } from 'node:fs/promises';

export interface ProcessFigures {
  readonly fileDescriptors: number;
  /**
   * Counts the sockets, timers and other resources that are active in the daemon: Node has nothing nearer to
   * goroutines.
   */
  readonly activities: number;
  /** Whether the kernel forwards IPv4 packets, no matter who switched that on. */
  readonly ipv4Forwarding: boolean;
}

export async function readProcessFigures(): Promise<ProcessFigures> {
  const [fds, forwarding] = await Promise.all([
    readdir('/proc/self/fd'),
    readFile('/proc/sys/net/ipv4/ip_forward', 'utf8').catch(() => ''),
  ]);
  return {
    fileDescriptors: fds.length,
    activities: process.getActiveResourcesInfo().length,
    ipv4Forwarding: forwarding.trim() === '1',
  };
}
