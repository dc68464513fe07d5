/**
 * Moves of processes between control groups. The kernel makes them under a lock that is cheap to share, for fork and
 * exit, and dear to take alone: whoever does waits for a grace period of RCU, 8 ms on an idle machine, unless somebody
 * had it to himself within about two such periods (cgroup_threadgroup_rwsem; kernel/rcu/sync.c). A runtime takes it for
 * each process that it puts into a container. So that the period passes while the runtime still loads, this process
 * takes the lock then, by a move that changes nothing: that of its main thread, alone, to the group that it is in.
 *
 * An operator who moves the daemon elsewhere must not find it back, also when that happens between two calls. So only a
 * thread is moved, with control groups of version 2: between groups that are not threaded the kernel refuses that, and
 * it does so under the lock. Version 1 has no such move; on hosts without version 2 nothing is done.
 */
import { type FileHandle, open, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const INTERVAL_MS = 10;
/**
 * Moves of one work. A runtime that has the processor is at its own move after some 30 ms. One that is not after twice
 * that waits for the processor, which these moves would only keep busy: each wakes two threads of this process.
 */
const MAX_MOVES = 6;
const ROOT = '/sys/fs/cgroup';
/** Node's name for EOPNOTSUPP: the daemon is in another group now. */
const REFUSED = 'ENOTSUP';

export class CgroupMoves {
  #works = 0;
  /** Moves that the work which began last may still see. */
  #left = 0;
  #timer: NodeJS.Timeout | undefined;
  #move: Promise<void> | undefined;
  /** Closed, or there is nothing that could be done on this host. */
  #isOver = false;
  #threads: FileHandle | undefined;

  /** Runs work during which somebody moves a process; the move then does not have to wait. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    this.#works++;
    try {
      // The call to the runtime is under way while the move is given to another thread.
      const working = work();
      this.#left = MAX_MOVES;
      this.#begin();
      this.#timer ??= setInterval(() => this.#begin(), INTERVAL_MS);
      return await working;
    } finally {
      if (--this.#works === 0) this.#pause();
    }
  }

  /** Closes its file; moves that begin later take their usual time. */
  async close(): Promise<void> {
    this.#isOver = true;
    await this.#move;
    await this.#forget();
  }

  #pause(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #begin(): void {
    if (this.#left-- === 0) return this.#pause();
    // One move serves all works under way, and if many wait for the kernel, none is needed.
    if (this.#isOver || this.#move !== undefined || this.#works > 1) return;
    this.#move = this.#takeLock().finally(() => (this.#move = undefined));
  }

  /** Never rejects: without it, the others' moves only take their usual time. */
  async #takeLock(): Promise<void> {
    try {
      this.#threads ??= await openThreadList(await readFile('/proc/self/cgroup', 'latin1'));
      if (this.#threads === undefined) this.#isOver = true;
      await this.#threads?.write(String(process.pid), 0);
    } catch (error) {
      // The group that it was in may have been removed.
      if ((error as NodeJS.ErrnoException).code !== REFUSED) await this.#forget();
    }
  }

  async #forget(): Promise<void> {
    const threads = this.#threads;
    this.#threads = undefined;
    await threads?.close().catch(() => undefined);
  }
}

async function openThreadList(groups: string): Promise<FileHandle | undefined> {
  for (const path of threadLists(groups)) {
    // The root has no type. A thread could be moved within a threaded group.
    const type = await readFile(join(dirname(path), 'cgroup.type'), 'latin1').catch(() => 'domain');
    const file = type.trim() === 'domain' ? await open(path, 'r+').catch(() => undefined) : undefined;
    if (file) return file;
  }
  return undefined;
}

/**
 * Returns where the group of version 2 in the text of /proc/PID/cgroup (man 7 cgroups) usually has its list of threads.
 */
export function threadLists(groups: string): string[] {
  const path = groups
    .split('\n')
    .find((line) => line.startsWith('0::'))
    ?.slice(3)
    .replace(/\/$/, '');
  return path === undefined ? [] : ['', '/unified'].map((mount) => `${ROOT}${mount}${path}/cgroup.threads`);
}
