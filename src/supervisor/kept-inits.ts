/**
 * Keeps descriptors of the init processes of tasks beyond the end of the daemon, because the kernel tells the exit code
 * of a process to whoever had such a descriptor before its end. So the code is known, too, when everybody else who saw
 * it is gone: the shim was killed, containerd has deleted the task at its start, and the daemon was away meanwhile.
 *
 * Kernels before Linux 6.15 do not tell it. There nothing is kept, and the shims are the only witnesses.
 */
import { create } from '@bufbuild/protobuf';
import { closeSync } from 'node:fs';
import { release } from 'node:os';
import type { Logger } from '../ports/logger.js';
import { DescriptorKeeper } from '../sys/process/descriptor-keeper.js';
import { exitCodeOf, openPidfd } from '../sys/process/pidfd.js';
import { ProcessSchema, Status, type Process } from './proto/gen/task_types_pb.js';

const TELLS_SINCE = [6, 15] as const;

export class KeptInits {
  readonly #keeper: DescriptorKeeper;
  readonly #logger: Logger;
  readonly #pidfds = new Map<string, number>();
  /** Tasks whose descriptor is on its way to the keeper, which may have to be started. */
  readonly #onTheWay = new Map<string, Promise<void>>();

  /** @param dir a directory for this alone; its keeper's process has it in its arguments. */
  constructor(dir: string, logger: Logger) {
    this.#keeper = new DescriptorKeeper(dir);
    this.#logger = logger;
  }

  /** Takes over what earlier daemons have kept. Call it before any task is added. */
  async load(): Promise<void> {
    if (!doesKernelTell()) return;
    try {
      for (const [id, [pidfd, ...others]] of await this.#keeper.earlier()) {
        for (const fd of others) closeSync(fd);
        if (pidfd !== undefined) this.#keep(id, pidfd);
      }
      await Promise.all(this.#onTheWay.values());
      this.#keeper.endEarlier();
    } catch (error) {
      this.#logger.error({ err: error }, 'exit codes that the kernel has kept cannot be read');
    }
  }

  /** Adds a task whose init process waits for its start. Without room for a descriptor it has none. */
  add(id: string, pid: number): void {
    if (!doesKernelTell()) return;
    this.remove(id);
    try {
      this.#keep(id, openPidfd(pid));
    } catch (error) {
      this.#logger.warn({ id, err: error }, 'the init process of a task cannot be watched');
    }
  }

  /** Resolves when the descriptor of a task outlives the daemon. It does not reject. */
  async kept(id: string): Promise<void> {
    await this.#onTheWay.get(id);
  }

  /** Returns the exit code of a task, as soon as the kernel tells it. */
  exitCode(id: string): number | undefined {
    const pidfd = this.#pidfds.get(id);
    return pidfd === undefined ? undefined : exitCodeOf(pidfd);
  }

  /** Returns the tasks that have ended, as containerd describes these. Nobody knows when they did. */
  ended(): Process[] {
    return Array.from(this.#pidfds.keys(), (id) => this.get(id)).filter((process) => process !== undefined);
  }

  /** Returns a task that has ended. */
  get(id: string): Process | undefined {
    const exitStatus = this.exitCode(id);
    return exitStatus === undefined ? undefined : create(ProcessSchema, { id, status: Status.STOPPED, exitStatus });
  }

  /** Forgets a task that was deleted. */
  remove(id: string): void {
    const pidfd = this.#pidfds.get(id);
    if (pidfd === undefined) return;
    this.#pidfds.delete(id);
    this.#keeper.release(id);
    closeSync(pidfd);
  }

  /** Closes files; the keeper has them for the next daemon. */
  close(): void {
    this.#keeper.close();
    for (const pidfd of this.#pidfds.values()) closeSync(pidfd);
    this.#pidfds.clear();
  }

  #keep(id: string, pidfd: number): void {
    this.#pidfds.set(id, pidfd);
    const sent: Promise<void> = this.#keeper
      .hold(id, [pidfd])
      .catch((error: unknown) =>
        this.#logger.warn({ id, err: error }, 'the exit code of a task is not kept while the daemon is away'),
      )
      .then(() => {
        if (this.#onTheWay.get(id) === sent) this.#onTheWay.delete(id);
      });
    this.#onTheWay.set(id, sent);
  }
}

function doesKernelTell(): boolean {
  const [major = 0, minor = 0] = release().split('.').map(Number.parseFloat);
  return major > TELLS_SINCE[0] || (major === TELLS_SINCE[0] && minor >= TELLS_SINCE[1]);
}
