/**
 * Shims that outlived their task: a daemon that is killed breaks off its calls, and containerd then forgets a task
 * without having ended its shim. Nobody else ever would.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { runProgram } from '../sys/process/spawn.js';

/** Shared by every containerd of the host. */
const SHIM_SOCKETS = '/run/containerd/s';

export interface ShimProcess {
  readonly pid: number;
  /** Of the container that it was started for. */
  readonly id: string;
}

/** Shims that serve a containerd's socket in a namespace, as their command lines say. */
export async function findShims(socket: string, namespace: string): Promise<ShimProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const shims = await Promise.all(
    pids.map(async (pid) => {
      // A process that ended meanwhile, like a kernel thread, has no command line.
      const args = (await readFile(join('/proc', pid, 'cmdline'), 'utf8').catch(() => '')).split('\0');
      const option = (name: string): string | undefined => args[args.indexOf(name) + 1];
      if (
        !args[0]?.includes('containerd-shim') ||
        !args.includes('-id') ||
        option('-address') !== socket ||
        option('-namespace') !== namespace
      )
        return [];
      return [{ pid: Number(pid), id: option('-id') ?? '' }];
    }),
  );
  return shims.flat();
}

/** Ends the shims whose task containerd does not know, and returns them. To be called before tasks are created. */
export async function endOrphanShims(
  socket: string,
  namespace: string,
  knownIds: ReadonlySet<string>,
): Promise<ShimProcess[]> {
  const orphans = (await findShims(socket, namespace)).filter(({ id }) => !knownIds.has(id));
  for (const { pid, id } of orphans) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    // Killed, it cannot remove its socket; the name is the one that containerd computes.
    await rm(
      join(
        SHIM_SOCKETS,
        createHash('sha256')
          .update(join(socket, namespace, id))
          .digest('hex'),
      ),
      { force: true },
    );
  }
  return orphans;
}

/**
 * Has the runtime forget the containers that containerd does not know, and end what runs of them: it would refuse to
 * make them again. `root` is the runtime's directory of one namespace. Returns their IDs.
 */
export async function deleteOrphanStates(root: string, knownIds: ReadonlySet<string>): Promise<string[]> {
  const names = await readdir(root).catch((error: NodeJS.ErrnoException) => {
    // No container was ever made.
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const orphans = names.filter((id) => !knownIds.has(id));
  for (const id of orphans) {
    // Each runtime can read its own files only; runc also knows what to do without any.
    const runtime = existsSync(join(root, id, 'status')) ? 'crun' : 'runc';
    await runProgram(runtime, ['--root', root, 'delete', '--force', id]);
  }
  return orphans;
}
