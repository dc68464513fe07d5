/**
 * The pipe in which a container prints, on its way to the shim. The shim takes 4 KiB at a time and mostly finds no
 * more, so that each 4 KiB are two changes between it and the program. With much room, the program goes on while the
 * shim waits for the daemon, and has all of that for it then.
 */
import type { Readable } from 'node:stream';
import type { StreamName } from '../../../ports/logs.js';
import { widenPipe } from '../../../sys/process/process-pipe.js';

/** As the daemon's own pipe of a flood has. What is in it is part of the container's memory. */
const ROOM_BYTES = 1 << 20;

/**
 * Widens it when the container prints much.
 * @param pid returns that of the container's init; 0 as long as it has none.
 */
export function widenWhenFlooded(source: Readable, stream: StreamName, pid: () => number): void {
  const widen = (): void => {
    const init = pid();
    if (init === 0) return;
    source.off('flood', widen);
    // When it has ended, or may have no more room, its output is as it was.
    widenPipe(init, stream === 'stdout' ? 1 : 2, ROOM_BYTES).catch(() => undefined);
  };
  source.on('flood', widen);
}
