/**
 * Removes what is left of tasks that containerd does not know: their shims with sockets and files, and what the runtime
 * keeps. A killed daemon breaks off its calls, and a killed containerd forgets the task that it was about to create.
 * Neither ends the shim, and nobody else would.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile, readlink, rm, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { processesOf } from '../sys/process/program-processes.js';
import { runProgram } from '../sys/process/spawn.js';

/** All containerds of the host share this directory. */
const SHIM_SOCKETS = '/run/containerd/s';
/** All shims have programs whose names begin so, and the kernel keeps no more of a name. */
const SHIM = 'containerd-shim';
/** The names of shims that serve one task after another begin so, where others have the ID of their task. */
export const POOLED = 'shared-';
/** A killed process is gone within milliseconds, unless the kernel holds it. */
const KILL_MS = 5_000;
const KILL_CHECK_MS = 10;

/** The tasks of one containerd in one of its namespaces. */
export interface Realm {
  /** Path of containerd's socket, as its shims know it. */
  readonly socket: string;
  readonly namespace: string;
  /** The runtime's directory, with one directory per namespace below. */
  readonly runcRoot: string;
  /**
   * Directories in which containerd has one directory for each task. Default: none, because those of an external
   * containerd are unknown.
   */
  readonly taskDirs?: readonly string[];
}

/** The arguments by which the shims of a realm are found. */
type ShimRealm = Pick<Realm, 'socket' | 'namespace'>;

export interface ShimProcess {
  readonly pid: number;
  /** ID of the container that it was started for. */
  readonly id: string;
}

/**
 * Finds shims that serve a realm, by their command lines, and processes that are about to start such a shim. What runs
 * in a container is none, whatever it is called: a daemon there may have the same places, and so its shims the same
 * arguments.
 */
export async function findShims({ socket, namespace }: ShimRealm): Promise<ShimProcess[]> {
  const own = await namespaceOf('self');
  const shims = await Promise.all(
    (await processesOf(SHIM)).map(async (pid) => {
      if ((await namespaceOf(pid)) !== own) return [];
      // A process that ended meanwhile has no command line.
      const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0');
      const option = (name: string): string | undefined => args[args.indexOf(name) + 1];
      if (!args.includes('-id') || option('-address') !== socket || option('-namespace') !== namespace) return [];
      return [{ pid, id: option('-id') ?? '' }];
    }),
  );
  return shims.flat();
}

/** Returns the namespace of a process for processes; undefined when it has ended. */
function namespaceOf(pid: number | 'self'): Promise<string | undefined> {
  return readlink(`/proc/${pid}/ns/pid`).catch(() => undefined);
}

/** Returns the names that containerd computes for a shim's socket and, since 2.0, for the one that debugs it. */
export function shimSockets({ socket, namespace }: ShimRealm, id: string): string[] {
  const task = join(socket, namespace, id);
  return [task, join(task, 'debug')].map((path) => join(SHIM_SOCKETS, createHash('sha256').update(path).digest('hex')));
}

/**
 * Tells whether the runtime keeps a container, because nobody told it that the container has ended, or containerd the
 * files of its task: it refuses a new one of the name then.
 */
export function hasState({ runcRoot, namespace, taskDirs = [] }: Realm, id: string): boolean {
  return [join(runcRoot, namespace), ...taskDirs].some((dir) => existsSync(join(dir, id)));
}

/** Removes the sockets of a task's shim, which must have ended: a killed shim leaves them. */
export async function removeShimSockets(realm: Realm, id: string): Promise<void> {
  await Promise.all(shimSockets(realm, id).map((path) => rm(path, { force: true })));
}

/** Finds the tasks that have shims or files. */
export async function findTraces({ taskDirs = [], ...realm }: Realm): Promise<string[]> {
  const shims = await findShims(realm);
  const files = await Promise.all(taskDirs.map(namesIn));
  return [...new Set([...shims.map(({ id }) => id).filter((id) => !id.startsWith(POOLED)), ...files.flat()])];
}

/**
 * Removes what is left of tasks that containerd does not know, and returns their IDs. No such task may be created
 * meanwhile. The runtime would refuse to make the container again, and so would an older containerd.
 */
export async function removeOrphans(realm: Realm, isOrphan: (id: string) => boolean): Promise<string[]> {
  const ended = await endShims(realm, (id) => !id.startsWith(POOLED) && isOrphan(id));
  const states = await deleteStates(realm, isOrphan);
  const dirs = await removeTaskDirs(realm, isOrphan);
  await Promise.all(ended.map((id) => removeShimSockets(realm, id)));
  return [...new Set([...ended, ...states, ...dirs])];
}

/**
 * Ends shims and returns the IDs of their tasks. It looks until there is none left, because a shim that is just being
 * started may not be visible yet.
 */
export async function endShims(realm: ShimRealm, isOrphan: (id: string) => boolean): Promise<string[]> {
  const ended = new Set<string>();
  const end = performance.now() + KILL_MS;
  for (;;) {
    const orphans = (await findShims(realm)).filter(({ id }) => isOrphan(id));
    for (const { pid, id } of orphans) {
      ended.add(id);
      try {
        process.kill(pid, 'SIGKILL');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
    if (orphans.length === 0 || performance.now() > end) return [...ended];
    await delay(KILL_CHECK_MS);
  }
}

/** Makes the runtime forget containers, and ends their processes. */
async function deleteStates({ runcRoot, namespace }: Realm, isOrphan: (id: string) => boolean): Promise<string[]> {
  const root = join(runcRoot, namespace);
  const orphans = (await namesIn(root)).filter(isOrphan);
  for (const id of orphans) {
    // Each runtime can read its own files only; runc also knows what to do without any.
    const runtime = existsSync(join(root, id, 'status')) ? 'crun' : 'runc';
    await runProgram(runtime, ['--root', root, 'delete', '--force', id]);
  }
  return orphans;
}

async function removeTaskDirs({ taskDirs = [] }: Realm, isOrphan: (id: string) => boolean): Promise<string[]> {
  const removed: string[] = [];
  for (const dir of taskDirs) {
    for (const id of (await namesIn(dir)).filter(isOrphan)) {
      // Nobody mounts anything there; if somebody did, this fails before any of his files is lost.
      await rmdir(join(dir, id, 'rootfs')).catch(ignoreAbsence);
      await rm(join(dir, id), { recursive: true, force: true });
      removed.push(id);
    }
  }
  return removed;
}

/** Returns the names in a directory; none if it is missing, because it is made with the first task. */
async function namesIn(dir: string): Promise<string[]> {
  return (await readdir(dir).catch(ignoreAbsence)) ?? [];
}

function ignoreAbsence(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
