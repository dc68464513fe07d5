/**
 * Moves of processes between control groups. The kernel makes them under a lock that is cheap to share, for fork and
 * exit, and dear to take alone: whoever does waits for a grace period of RCU, 8 ms on an idle machine, unless somebody
 * had it to himself within about two such periods (cgroup_threadgroup_rwsem; kernel/rcu/sync.c). A runtime takes it for
 * each process that it puts into a container. So that the period passes while the runtime still loads, this process
 * takes the lock then, by a move that changes nothing: to the group that it is in.
 */
import { type FileHandle, open } from 'node:fs/promises';

const INTERVAL_MS = 10;
const ROOT = '/sys/fs/cgroup';
const MAX_BYTES = 16 * 1024;

export class CgroupMoves {
  #works = 0;
  #timer: NodeJS.Timeout | undefined;
  #move: Promise<void> | undefined;
  #isClosed = false;
  readonly #buffer = Buffer.alloc(MAX_BYTES);
  #groups: FileHandle | undefined;
  /** The groups of this process as they were read last, and the file through which it can be moved to one of them. */
  #own: { readonly groups: string; readonly members: FileHandle | undefined } = { groups: '', members: undefined };

  /** Runs work during which somebody moves a process; the move then does not have to wait. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    if (this.#works++ === 0) {
      this.#begin();
      this.#timer = setInterval(() => this.#begin(), INTERVAL_MS);
    }
    try {
      return await work();
    } finally {
      if (--this.#works === 0) clearInterval(this.#timer);
    }
  }

  /** Closes its files; moves that begin later take their usual time. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#move;
    await this.#groups?.close();
    await this.#own.members?.close();
    this.#groups = undefined;
    this.#own = { groups: '', members: undefined };
  }

  #begin(): void {
    // One move serves all works under way, and if many wait for the kernel, none is needed.
    if (this.#isClosed || this.#move !== undefined || this.#works > 1) return;
    this.#move = this.#moveToOwn().finally(() => (this.#move = undefined));
  }

  async #moveToOwn(): Promise<void> {
    try {
      this.#groups ??= await open('/proc/self/cgroup', 'r');
      const { bytesRead } = await this.#groups.read(this.#buffer, 0, MAX_BYTES, 0);
      const groups = this.#buffer.toString('latin1', 0, bytesRead);
      // Read each time: whoever moved the daemon elsewhere is not to find it back.
      if (groups !== this.#own.groups) {
        await this.#own.members?.close();
        this.#own = { groups, members: await openMemberList(groups) };
      }
      await this.#own.members?.write('0', 0);
    } catch {
      // Whatever it was, the others' moves only take their usual time.
    }
  }
}

/** The list of members of a group that this process really is in: what is mounted may begin at another group. */
async function openMemberList(groups: string): Promise<FileHandle | undefined> {
  for (const path of memberLists(groups)) {
    const file = await open(path, 'r+').catch(() => undefined);
    const members = await file?.readFile('latin1').catch(() => '');
    if (members?.split('\n').includes(String(process.pid))) return file;
    await file?.close();
  }
  return undefined;
}

/** Where the groups in the text of /proc/PID/cgroup (man 7 cgroups) usually have their lists of members. */
export function memberLists(groups: string): string[] {
  return groups
    .split('\n')
    .filter((line) => line !== '')
    .flatMap((line) => {
      const [, names = '', ...path] = line.split(':');
      const mounts = names === '' ? ['', '/unified'] : [`/${names.replace(/^name=/, '')}`];
      return mounts.map((mount) => `${ROOT}${mount}${path.join(':').replace(/\/$/, '')}/cgroup.procs`);
    });
}
