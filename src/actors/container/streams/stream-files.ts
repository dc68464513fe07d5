/**
 * The FIFOs of containers and of the processes inside them: `<root>/<container>/…` and `<root>/<container>/<exec>/…`.
 * The process that makes a FIFO also removes it, unless the shim or the daemon is killed: this module removes the FIFOs
 * that are left then.
 */
import { closeSync, constants, openSync } from 'node:fs';
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isThere } from '../../../sys/files/remove-file.js';

/** Removes all FIFOs of a container that has ended, because none of its processes is alive then. */
export async function removeStreams(root: string, id: string): Promise<void> {
  const place = join(root, id);
  // Mostly everything is removed by who made it.
  if (isThere(place)) await rm(place, { recursive: true, force: true });
}

/**
 * Removes FIFOs at the start of the daemon: those of containers that do not run, and those of every exec, since execs
 * are not taken over. FIFOs of running containers stay.
 */
export async function removeStaleStreams(root: string, running: ReadonlySet<string>): Promise<void> {
  for (const id of await namesIn(root)) {
    if (!running.has(id)) await removeStreams(root, id);
    else for (const exec of await namesIn(join(root, id))) await removeStreams(join(root, id), exec);
  }
}

/**
 * Opens the outputs of execs, and returns the function that closes them. A shim that has begun an exec when the daemon
 * was killed waits until somebody opens them, up to 30 s, and answers nobody meanwhile who asks for the container.
 */
export async function openStaleOutputs(root: string): Promise<() => void> {
  const fds: number[] = [];
  for (const id of await namesIn(root))
    for (const exec of await namesIn(join(root, id)))
      for (const output of ['stdout', 'stderr']) {
        try {
          fds.push(openSync(join(root, id, exec, output), constants.O_RDONLY | constants.O_NONBLOCK));
        } catch {
          // A terminal has no second one, and an exec that has ended may have none.
        }
      }
  return () => fds.forEach((fd) => closeSync(fd));
}

/** Returns the names of the directories in a directory. */
async function namesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
}
