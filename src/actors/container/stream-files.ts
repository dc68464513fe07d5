/**
 * The FIFOs of containers and of the processes inside them: `<root>/<container>/…` and `<root>/<container>/<exec>/…`.
 * Who makes one also removes it, unless the shim or the daemon is killed: this takes away what is left then.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** After the end of a container, which none of its processes outlives. */
export async function removeStreams(root: string, id: string): Promise<void> {
  await rm(join(root, id), { recursive: true, force: true });
}

/**
 * At the start of the daemon: whose container does not run, and every exec, since none of them is taken over. The FIFOs
 * of containers that run are.
 */
export async function removeStaleStreams(root: string, running: ReadonlySet<string>): Promise<void> {
  for (const id of await namesIn(root)) {
    if (!running.has(id)) await removeStreams(root, id);
    else for (const exec of await namesIn(join(root, id))) await removeStreams(join(root, id), exec);
  }
}

/** Names of directories. */
async function namesIn(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  return entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
}
