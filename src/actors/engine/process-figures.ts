/** Figures of the running process and the kernel under it that `info` shows, asked anew each time. */
import { readdir, readFile } from 'node:fs/promises';

export interface ProcessFigures {
  readonly fileDescriptors: number;
  /** What is under way in the daemon, such as sockets and timers: the nearest there is to goroutines. */
  readonly activities: number;
  /** Whether the kernel forwards packets of IPv4, whoever said that it should. */
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
