/** Runs tasks that speak with servers, and takes orders while they do: progress comes back, cancelling goes there. */
import { MessageChannel } from 'node:worker_threads';
import { createWorkerPool, type WorkerPool } from '../../workers/pool.js';
import { throwIfAborted } from './cancellation.js';
import type { FetchUrlInput, FetchUrlOutput, FetchUrlReport } from './fetch-url.js';
import type { RunGitInput, RunGitOutput, RunGitReport } from './run-git.js';

/** The tasks wait for servers most of the time. */
const THREADS = 2;
const TASKS_PER_THREAD = 16;

export class SourceTasks {
  readonly #pool: WorkerPool = createWorkerPool({ maxThreads: THREADS, tasksPerThread: TASKS_PER_THREAD });

  fetchUrl(
    input: Omit<FetchUrlInput, 'port'>,
    onReport: (report: FetchUrlReport) => void,
    signal: AbortSignal,
  ): Promise<FetchUrlOutput> {
    return this.#run('fetch-url', input, onReport, signal);
  }

  runGit(
    input: Omit<RunGitInput, 'port'>,
    onReport: (report: RunGitReport) => void,
    signal: AbortSignal,
  ): Promise<RunGitOutput> {
    return this.#run('run-git', input, onReport, signal);
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  async #run<Output>(
    task: 'fetch-url' | 'run-git',
    input: object,
    onReport: (report: never) => void,
    signal: AbortSignal,
  ): Promise<Output> {
    throwIfAborted(signal);
    const { port1: near, port2: far } = new MessageChannel();
    const cancel = (): void => near.postMessage({ type: 'cancel' }, []);
    near.on('message', onReport as (report: unknown) => void);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      const whole = { ...input, port: far } as never;
      const output = await this.#pool.run(task, whole, { transferList: [far] });
      return output as Output;
    } catch (error) {
      throwIfAborted(signal);
      throw error;
    } finally {
      signal.removeEventListener('abort', cancel);
      near.close();
    }
  }
}
