/**
 * Watches the init processes of tasks themselves. Their exits are told by shims, by way of containerd, and a shim may
 * lose one: that of containerd 1.7.24 keeps it for ever once the start of an exec was broken off, as by a kill of the
 * daemon (19 of 108 containers with health checks), and one that hangs tells nobody anything. The kernel knows that the
 * process has ended; then whoever should tell is asked.
 */
import { closeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError } from '../../errors/engine-error.js';
import { watchArrivals } from '../../sys/net/arrivals.js';
import { openPidfd, sendSignal } from '../../sys/process/pidfd.js';
import { awake } from '../../text/awake.js';
import { SIGKILL } from '../../text/signals.js';

/** The exit is told within milliseconds, but on a busy machine it may take its time. */
const PAUSE_MS = 3_000;
/** An exit is lost when so many answers in a row do not know of it. */
const ANSWERS = 2;
/** A shim that has not passed SIGKILL on for so long hangs; that it does so later harms nobody. */
const HANG_MS = 10_000;

export interface InitWatchOptions {
  /**
   * Asks for the state of a task whose process has ended. Returns true when its exit is told now. Throws when nobody
   * can be asked, which says nothing about the exit.
   */
  readonly ask: (id: string) => Promise<boolean>;
  /** Called when nobody will tell the exit. It must not throw. */
  readonly lost: (id: string) => Promise<void>;
  /** How long an exit may take to be told before somebody is asked, and asked again. */
  readonly pauseMs?: number;
  /** How long a shim may take to pass SIGKILL on. */
  readonly hangMs?: number;
}

interface Watch {
  readonly stopped: AbortController;
  /** Kills the process, if it has not ended. */
  kill(): void;
  end(): void;
}

export class InitWatch {
  readonly #options: Required<InitWatchOptions>;
  readonly #watches = new Map<string, Watch>();

  constructor(options: InitWatchOptions) {
    this.#options = { pauseMs: PAUSE_MS, hangMs: HANG_MS, ...options };
  }

  /**
   * Watches the init process of a task until `remove`; a task that is watched already stays as it is. No such process
   * counts as one that has ended, if `mayBeGone`. Without room for a descriptor the task is not watched.
   */
  add(id: string, pid: number, { mayBeGone }: { readonly mayBeGone: boolean }): void {
    if (pid <= 0 || this.#watches.has(id)) return;
    let pidfd: number;
    try {
      pidfd = openPidfd(pid);
    } catch (error) {
      if (!mayBeGone || !isEngineError(error) || error.code !== 'ESRCH') return;
      const stopped = new AbortController();
      this.#watches.set(id, { stopped, kill: () => undefined, end: () => undefined });
      void this.#settle(id, stopped.signal);
      return;
    }
    this.#watches.set(id, this.#watch(id, pidfd));
  }

  /** Ends the watch of a task whose exit is told, or which is gone. */
  remove(id: string): void {
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    this.#watches.delete(id);
    watch.stopped.abort();
    watch.end();
  }

  /**
   * Awaits a SIGKILL that the shim of a task is asked for. When that hangs, a watched process is killed without it: the
   * supervisor must be our own, since the processes of others may have other numbers.
   */
  async killed(id: string, byShim: Promise<unknown>): Promise<void> {
    const over = new AbortController();
    const late = awake(this.#options.hangMs, over.signal).then(() => {
      const watch = over.signal.aborted ? undefined : this.#watches.get(id);
      return watch === undefined ? byShim : watch.kill();
    });
    await Promise.race([byShim, late]).finally(() => over.abort());
  }

  close(): void {
    for (const id of Array.from(this.#watches.keys())) this.remove(id);
  }

  #watch(id: string, pidfd: number): Watch {
    const stopped = new AbortController();
    let isOpen = true;
    const end = (): void => {
      if (!isOpen) return;
      isOpen = false;
      arrivals.close();
      closeSync(pidfd);
    };
    const arrivals = watchArrivals(pidfd, () => {
      end();
      void this.#settle(id, stopped.signal);
    });
    const kill = (): void => {
      if (isOpen) sendSignal(pidfd, SIGKILL);
    };
    return { stopped, kill, end };
  }

  /** Waits until the exit is told; when it is not, it counts as lost. */
  async #settle(id: string, signal: AbortSignal): Promise<void> {
    for (let answers = 0; answers < ANSWERS;) {
      await delay(this.#options.pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      const isTold = await this.#options.ask(id).catch(() => undefined);
      if (isTold === true || signal.aborted) return;
      if (isTold === false) answers += 1;
    }
    await this.#options.lost(id);
  }
}
