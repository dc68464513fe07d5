/** The pool of worker threads: everything that would hold the main thread for more than a millisecond runs here. */
import type { Transferable } from 'node:worker_threads';
import { Piscina } from 'piscina';
import { cancelled, unavailable } from '../errors/engine-error.js';
import { lookedAfter } from '../sys/process/busy-memory.js';
import { doom, doomAll, type Life, newLife } from '../sys/ffi/unkilled.js';
import { step } from '../text/steps.js';
import type { Order } from './entry.js';
import { unwrap, type Outcome } from './outcome.js';
import type { TaskInput, TaskName, TaskOutput } from './tasks.js';

export interface WorkerPoolOptions {
  readonly maxThreads: number;
  /**
   * Tasks that share a thread. Default 1; more for tasks that mostly wait for the network and for zlib's own threads:
   * a thread costs far more memory than a task.
   */
  readonly tasksPerThread?: number;
  /** How long a thread without work stays in this pool, with all that makes its next task fast. */
  readonly idleTimeoutMs?: number;
}

export interface RunOptions {
  /**
   * Takes a waiting task out of the queue; a running one is killed with its thread, wherever it is, so the caller
   * clears away what it left.
   */
  readonly signal?: AbortSignal;
  /** The task mostly waits for clients, and lasts as long as they do: memory is not looked after meanwhile. */
  readonly isService?: boolean;
  /** Buffers and ports of the input that move to the worker instead of being copied. */
  readonly transferList?: readonly Transferable[];
}

export interface WorkerPool {
  /**
   * Runs a task in a thread, waiting for a free one.
   * @throws EngineError as the task threw it; `internal` for any other error of the task; `cancelled` on abort.
   */
  run<Name extends TaskName>(task: Name, input: TaskInput<Name>, options?: RunOptions): Promise<TaskOutput<Name>>;
  /** Tasks that wait for a thread. */
  readonly queued: number;
  /** Kills all threads; tasks under way are rejected. */
  close(): Promise<void>;
}

/** In the bundle, a thread without work is soon spare for any pool (held-worker.ts). */
declare const ENGINED_THREAD: string | undefined;
const IDLE_MS = typeof ENGINED_THREAD === 'string' ? 100 : 5000;

/** Tasks keep little alive: Node's default for young objects would be half the memory of a thread. */
const YOUNG_GENERATION_MB = 2;
/** More than any task keeps. V8 maps its built-in functions again, 1 MiB, for a thread whose heap may have 2 GiB. */
const OLD_GENERATION_MB = 1900;

/** Makes a pool without threads; they start with the first tasks and end when they are idle. */
export function createWorkerPool(options: WorkerPoolOptions): WorkerPool {
  let threads = startThreads(options);
  const isKept = options.idleTimeoutMs !== undefined;
  const lives = new Set<Life>();
  return {
    async run<Name extends TaskName>(
      task: Name,
      input: TaskInput<Name>,
      { signal, transferList, isService }: RunOptions = {},
    ) {
      if (threads.failure !== undefined) threads = startThreads(options);
      const current = threads;
      if (signal?.aborted) throw cancelled(`${task} was cancelled`);
      const kill = signal && new Kill(signal);
      const control = {
        ...(kill ? { signal: kill.signal } : {}),
        ...(transferList ? { transferList: [...transferList] } : {}),
      };
      const life = kill?.life ?? newLife();
      lives.add(life);
      const order: Order = { task, input, life, isKept };
      const perform = (): Promise<unknown> => step(`worker.${task}`, () => current.pool.run(order, control));
      const running = isService === true ? perform() : lookedAfter(perform);
      const ended = Promise.race(kill ? [running, kill.givenUp] : [running]).finally(() => {
        kill?.end();
        lives.delete(life);
      });
      const outcome = (await ended.catch((error: unknown) => {
        if (signal?.aborted) throw cancelled(`${task} was cancelled`, { cause: error });
        if (current.failure !== undefined)
          throw unavailable(`no worker thread could be started: ${current.failure.message}`, {
            cause: current.failure,
          });
        throw error;
      })) as Outcome;
      return unwrap(outcome) as TaskOutput<Name>;
    },
    get queued() {
      return threads.pool.queueSize;
    },
    async close() {
      await doomAll(lives);
      await threads.pool.destroy();
    },
  };
}

/** Ends a task when that is wanted: before it begins, or with its thread as soon as that may be killed. */
class Kill {
  readonly life = newLife();
  readonly #kill = new AbortController();
  /** Rejects for a task that never begins. */
  readonly givenUp: Promise<never>;
  #giveUp: (reason: unknown) => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(private readonly wanted: AbortSignal) {
    this.givenUp = new Promise((_, reject) => (this.#giveUp = reject));
    this.givenUp.catch(() => undefined);
    wanted.addEventListener('abort', this.#try, { once: true });
  }

  /** Kills the thread. */
  get signal(): AbortSignal {
    return this.#kill.signal;
  }

  /** Forgets about it: the task is over. */
  end(): void {
    clearTimeout(this.#timer);
    this.wanted.removeEventListener('abort', this.#try);
  }

  readonly #try = (): void => {
    const how = doom(this.life);
    if (how === 'later') this.#timer = setTimeout(this.#try, 1);
    else if (how === 'kill') this.#kill.abort(this.wanted.reason);
    else this.#giveUp(this.wanted.reason);
  };
}

interface Threads {
  readonly pool: Piscina;
  /** Set once a thread failed outside a task: piscina starts no other one then, and what waits would wait for ever. */
  failure: Error | undefined;
}

function startThreads({ maxThreads, tasksPerThread = 1, idleTimeoutMs = IDLE_MS }: WorkerPoolOptions): Threads {
  const pool = new Piscina({
    filename: new URL('entry.js', import.meta.url).href,
    name: 'run',
    minThreads: 0,
    maxThreads,
    concurrentTasksPerWorker: tasksPerThread,
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB, maxOldGenerationSizeMb: OLD_GENERATION_MB },
    idleTimeout: idleTimeoutMs,
    // A thread that waits in Atomics.wait could not finish closing its sockets.
    atomics: 'disabled',
    recordTiming: false,
  });
  const threads: Threads = { pool, failure: undefined };
  pool.on('error', (error: Error) => {
    threads.failure = error;
    void pool.destroy();
  });
  return threads;
}
