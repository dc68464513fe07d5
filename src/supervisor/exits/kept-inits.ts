/**
 * Keeps witnesses of the exits of init processes beyond the end of the daemon. So the code is known, too, when
 * containerd has deleted the task at its start, and the daemon, which would have asked before, was away.
 *
 * Since Linux 6.15 the kernel is the witness: it tells the exit code of a process to whoever had a descriptor of it
 * before its end, even if the shim was killed. Before that, the shim is asked in time: its answer waits in a socket.
 */
import { create } from '@bufbuild/protobuf';
import { closeSync } from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { notFound } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import { DescriptorKeeper } from '../../sys/process/descriptor-keeper.js';
import { exitCodeOf, openPidfd } from '../../sys/process/pidfd.js';
import { isAtLeast, parseVersion, type Version } from '../../text/version.js';
import { askForEnd, toldEnd } from './kept-answer.js';
import { ProcessSchema, Status, type Process } from '../proto/gen/task_types_pb.js';
import { shimAddress } from '../shims/shim-address.js';

const TELLS_SINCE: Version = [6, 15];
/** A new parent waits for a process at once, but on a busy machine it may take its time. */
const REAPED_MS = 2_000;
const REAPED_CHECK_MS = 10;

export interface KeptInitsOptions {
  /** A directory for this alone; the keeper's process has it in its arguments. */
  readonly dir: string;
  /** containerd's directory of the running tasks of the namespace. */
  readonly bundles: string;
  readonly logger: Logger;
  /** Whether the kernel is asked instead of the shims. Default: if it is new enough. */
  readonly asksKernel?: boolean;
}

export class KeptInits {
  readonly #options: KeptInitsOptions;
  readonly #asksKernel: boolean;
  readonly #keeper: DescriptorKeeper;
  readonly #pidfds = new Map<string, number>();
  /** Sockets for the answers about tasks that were not started yet. Later ones have only the keeper. */
  readonly #answers = new Map<string, Promise<number>>();
  /** Only earlier keepers have the witnesses of these tasks, since holding them has failed. */
  readonly #unheld = new Set<string>();
  /** Answers to an earlier daemon. */
  readonly #told = new Map<string, Process>();

  constructor(options: KeptInitsOptions) {
    this.#options = options;
    this.#asksKernel = options.asksKernel ?? doesKernelTell();
    this.#keeper = new DescriptorKeeper(options.dir);
  }

  /** Takes over what earlier daemons have kept. Call it before any task is added. */
  async load(): Promise<void> {
    try {
      const earlier = await this.#keeper.earlier();
      for (const [id, [fd, ...others]] of earlier) {
        for (const other of others) closeSync(other);
        if (fd !== undefined) this.#takeOver(id, fd);
        this.#unheld.add(id);
      }
      await this.#holdEarlier();
    } catch (error) {
      this.#options.logger.error({ err: error }, 'exits that were kept while the daemon was away cannot be read');
    }
  }

  /** Adds a task whose init process waits for its start. */
  add(id: string, pid: number): void {
    this.remove(id);
    try {
      if (this.#asksKernel) this.#pidfds.set(id, openPidfd(pid));
      else this.#answers.set(id, this.#ask(id));
    } catch (error) {
      this.#notKept(id, error);
    }
  }

  /**
   * Has the witness of a task outlive the daemon. Call it before the start: the next daemon takes every task that it
   * finds for one that was started. Without a witness a task runs all the same.
   */
  async hold(id: string): Promise<void> {
    if ((await this.#hold(id)) && this.#unheld.size > 0) await this.#holdEarlier();
  }

  /** Holds what only earlier keepers have. They end when nothing of that is left. */
  async #holdEarlier(): Promise<void> {
    const hold = async (id: string): Promise<void> => {
      if (await this.#hold(id)) this.#unheld.delete(id);
    };
    await Promise.all(Array.from(this.#unheld, hold));
    if (this.#unheld.size === 0) this.#keeper.endEarlier();
  }

  /** Returns whether nothing of the task has to be held any more. */
  async #hold(id: string): Promise<boolean> {
    const pidfd = this.#pidfds.get(id);
    const answer = this.#answers.get(id);
    this.#answers.delete(id);
    try {
      if (pidfd !== undefined) await this.#keeper.hold(id, [pidfd]);
      else if (answer !== undefined) await this.#holdAnswer(id, await answer);
      return true;
    } catch (error) {
      this.#notKept(id, error);
      return false;
    }
  }

  /** Returns the exit code of a task, as soon as its witness tells it. */
  exitCode(id: string): number | undefined {
    const pidfd = this.#pidfds.get(id);
    return pidfd === undefined ? this.#told.get(id)?.exitStatus : exitCodeOf(pidfd);
  }

  /** Tells whether the kernel will tell the exit code of a task. */
  has(id: string): boolean {
    return this.#pidfds.has(id);
  }

  /** Tells that there is no witness of a task, which is held before the start. With an older kernel nobody knows. */
  lacks(id: string): boolean {
    return this.#asksKernel && !this.has(id);
  }

  /** Returns the exit code of a task whose process has ended, and is just being waited for by its parent. */
  async exitCodeSoon(id: string): Promise<number | undefined> {
    const giveUpAt = performance.now() + REAPED_MS;
    for (;;) {
      const exitCode = this.exitCode(id);
      if (exitCode !== undefined || !this.has(id) || performance.now() > giveUpAt) return exitCode;
      await delay(REAPED_CHECK_MS);
    }
  }

  /** Returns the tasks that have ended, as containerd describes these. The kernel does not know when. */
  ended(): Process[] {
    const ids = [...this.#pidfds.keys(), ...this.#told.keys()];
    return ids.map((id) => this.get(id)).filter((process) => process !== undefined);
  }

  /** Returns a task that has ended. */
  get(id: string): Process | undefined {
    const exitStatus = this.exitCode(id);
    if (exitStatus === undefined) return undefined;
    return this.#told.get(id) ?? create(ProcessSchema, { id, status: Status.STOPPED, exitStatus });
  }

  /** Forgets a task that was deleted. */
  remove(id: string): void {
    this.#keeper.release(id);
    this.#forget(id);
    if (this.#unheld.delete(id) && this.#unheld.size === 0) this.#keeper.endEarlier();
  }

  /** Closes files; the keeper has them for the next daemon. */
  close(): void {
    this.#keeper.close();
    for (const id of [...this.#pidfds.keys(), ...this.#answers.keys()]) this.#forget(id);
  }

  #takeOver(id: string, fd: number): void {
    if (this.#asksKernel) return void this.#pidfds.set(id, fd);
    this.#answers.set(id, Promise.resolve(fd));
    const told = toldEnd(fd, id);
    if (told !== undefined) this.#told.set(id, told);
  }

  #forget(id: string): void {
    this.#told.delete(id);
    this.#answers.get(id)?.then(closeSync, () => undefined);
    this.#answers.delete(id);
    const pidfd = this.#pidfds.get(id);
    this.#pidfds.delete(id);
    if (pidfd !== undefined) closeSync(pidfd);
  }

  async #ask(id: string): Promise<number> {
    const address = await shimAddress(join(this.#options.bundles, id));
    if (address === undefined) throw notFound('the shim has left no address');
    return askForEnd(address, id);
  }

  async #holdAnswer(id: string, fd: number): Promise<void> {
    try {
      await this.#keeper.hold(id, [fd]);
      closeSync(fd);
    } catch (error) {
      if (this.#unheld.has(id)) this.#answers.set(id, Promise.resolve(fd));
      else closeSync(fd);
      throw error;
    }
  }

  #notKept(id: string, error: unknown): void {
    this.#options.logger.warn({ id, err: error }, 'the exit of a task is not kept while the daemon is away');
  }
}

function doesKernelTell(): boolean {
  return isAtLeast(parseVersion(release()), TELLS_SINCE);
}
