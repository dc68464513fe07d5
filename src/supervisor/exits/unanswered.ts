/**
 * Asks again for processes of whose state nobody knows, because their shim does not answer containerd. A process may
 * have ended before that, and nobody tells its exit a second time: so it is asked for until there is an answer.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from '../../ports/logger.js';
import type { TaskLookup } from '../task-lookup.js';
import { Status, type Process } from '../proto/gen/task_types_pb.js';
import type { ExitWatch, ProcessRef } from './exit-watch.js';

/** Each question keeps containerd waiting for 2 s. Between two rounds of questions it has rest. */
const PAUSE_MS = 3_000;
/** However many shims hang, only so many questions are under way. */
const MOST_AT_ONCE = 8;

export interface UnansweredOptions {
  readonly logger: Logger;
  readonly lookup: Pick<TaskLookup, 'find'>;
  readonly exits: Pick<ExitWatch, 'isAwaited'>;
  /** Reports the exit of a process; undefined when containerd does not know the process. */
  readonly ended: (process: ProcessRef, found: Process | undefined) => void;
  /** Called with the init process of a task that was asked for again, and has not ended. */
  readonly alive: (process: Process) => void;
  /** How long nobody is asked between two rounds. */
  readonly pauseMs?: number;
}

export class Unanswered {
  readonly #options: Required<UnansweredOptions>;
  readonly #processes = new Map<string, ProcessRef>();
  readonly #closed = new AbortController();
  #isAsking = false;

  constructor(options: UnansweredOptions) {
    this.#options = { pauseMs: PAUSE_MS, ...options };
  }

  /** Asks for an awaited process until it is known how it is, or its exit was reported. */
  add(process: ProcessRef): void {
    this.#processes.set(`${process.id} ${process.execId}`, process);
    if (this.#isAsking) return;
    this.#isAsking = true;
    void this.#askAll().finally(() => (this.#isAsking = false));
  }

  /** Asks for an awaited process, again and again while its shim does not answer. @param listed the first answer. */
  async ask(process: ProcessRef, listed?: Process): Promise<void> {
    const { lookup, logger } = this.#options;
    try {
      this.#answered(process, listed ?? (await lookup.find(process)));
    } catch (error) {
      logger.warn({ ...process, err: error }, 'cannot ask for the state of a process; it is asked for again');
      this.add(process);
    }
  }

  /** Forgets a task that is gone; the next one of this ID is another one. */
  forget(id: string): void {
    for (const [key, process] of this.#processes) if (process.id === id) this.#processes.delete(key);
  }

  close(): void {
    this.#closed.abort();
  }

  #answered(process: ProcessRef, found: Process | undefined): void {
    if (found?.status === Status.UNKNOWN) this.add(process);
    else if (found === undefined || found.status === Status.STOPPED) this.#options.ended(process, found);
  }

  async #askAll(): Promise<void> {
    const { signal } = this.#closed;
    while (this.#processes.size > 0) {
      await delay(this.#options.pauseMs, undefined, { signal, ref: false }).catch(() => undefined);
      const round = [...this.#processes];
      while (round.length > 0 && !signal.aborted)
        await Promise.all(round.splice(0, MOST_AT_ONCE).map(([key, process]) => this.#askAgain(key, process)));
      if (signal.aborted) return;
    }
  }

  async #askAgain(key: string, process: ProcessRef): Promise<void> {
    const { lookup, exits, alive, logger } = this.#options;
    const isOpen = (): boolean => this.#processes.get(key) === process && !this.#closed.signal.aborted;
    try {
      // Its exit may be told by others, also while the question is under way.
      const found = exits.isAwaited(process) ? await lookup.find(process) : undefined;
      if (!isOpen() || found?.status === Status.UNKNOWN) return;
      this.#processes.delete(key);
      if (!exits.isAwaited(process)) return;
      this.#answered(process, found);
      if (process.execId === '' && found !== undefined && found.status !== Status.STOPPED) alive(found);
    } catch (error) {
      logger.debug({ ...process, err: error }, 'cannot ask again for the state of a process');
    }
  }
}
