/**
 * Finds out how tasks are: containerd is asked, and what it has forgotten or nobody has told it is known by the
 * witnesses of exits.
 */
import { create } from '@bufbuild/protobuf';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isEngineError, notFound } from '../errors/engine-error.js';
import type { ProcessRef } from './exits/exit-watch.js';
import type { UnaryClient } from './grpc-connection.js';
import type { HeardExits } from './exits/heard-exits.js';
import type { KeptInits } from './exits/kept-inits.js';
import { decodeMetrics, type CgroupMetrics } from './metrics.js';
import { ProcessSchema, Status, type Process } from './proto/gen/task_types_pb.js';
import type { Tasks } from './proto/gen/tasks_pb.js';

export const READ = { timeoutMs: 10_000 };
/** This makes a minute, as each question takes 2 s when the shim does not answer. */
const SHIM_QUESTIONS = 30;
/** containerd asks one shim after the other for a list, and waits 2 s for each that does not answer. */
const LIST_TIMEOUT_MS = 3_000;

export interface Witnesses {
  /** Exits in the absence of containerd, which may have forgotten them. */
  readonly heard: HeardExits;
  /** Exits that the kernel knows. Default: none, because the processes of an external containerd may be elsewhere. */
  readonly kept?: KeptInits | undefined;
}

export interface TaskLookupOptions extends Witnesses {
  readonly tasks: UnaryClient<typeof Tasks>;
  /** These are all that may have a task. */
  readonly containers: { ids(): Promise<readonly string[]> };
  /** Shims write the process IDs of their tasks below these. Default: they are unknown. */
  readonly bundles?: readonly string[] | undefined;
}

export class TaskLookup {
  readonly #tasks: UnaryClient<typeof Tasks>;
  readonly #options: TaskLookupOptions;
  readonly #witnesses: Witnesses;

  constructor(options: TaskLookupOptions) {
    this.#tasks = options.tasks;
    this.#options = options;
    this.#witnesses = options;
  }

  /** Returns all tasks as containerd lists them: each shim is asked once. */
  async listed(): Promise<Process[]> {
    try {
      return (await this.#tasks.list({}, { timeoutMs: LIST_TIMEOUT_MS })).tasks;
    } catch (error) {
      // containerd knows the deadline, and may cancel the call before it has passed here.
      if (!isEngineError(error, 'deadline') && !isEngineError(error, 'cancelled')) throw error;
    }
    // Some shims hang: when containerd is asked for each task, it waits for all of these at the same time.
    const ask = async (id: string): Promise<Process[]> => {
      try {
        const { process } = await this.#tasks.get({ containerId: id, execId: '' }, READ);
        return process === undefined ? [] : [process];
      } catch (error) {
        // A question that fails says no more than one that is not answered.
        return isEngineError(error, 'not-found') ? [] : [create(ProcessSchema, { id, status: Status.UNKNOWN })];
      }
    };
    return (await Promise.all((await this.#options.containers.ids()).map(ask))).flat();
  }

  /**
   * Returns all tasks that containerd or a witness knows. @param isEnough tells of which it is enough that they are
   * there: their state is unknown when their shim does not answer at once.
   */
  async all(isEnough: (id: string) => boolean = () => false): Promise<Process[]> {
    const { heard, kept } = this.#witnesses;
    const known = new Map<string, Process>();
    const tasks = await this.listed();
    // Witnesses are asked afterwards: a task that is not listed may have ended just before.
    for (const process of [...(kept?.ended() ?? []), ...heard.tasks()]) known.set(process.id, process);
    await Promise.all(
      tasks.map(async (task) => {
        const process = isEnough(task.id) ? await this.#corrected(task) : await this.#answered(task);
        if (process !== undefined) known.set(task.id, process);
      }),
    );
    return [...known.values()];
  }

  /** Returns a task, asking again while its shim does not answer containerd, unless its state may stay unknown. */
  async get(id: string, mayBeUnknown = false): Promise<Process | undefined> {
    const found = await this.find({ id, execId: '' });
    return mayBeUnknown ? found : found && this.#answered(found);
  }

  /** Asks once for a process. */
  async find({ id, execId }: ProcessRef): Promise<Process | undefined> {
    const { heard, kept } = this.#witnesses;
    const answer = await unlessNotFound(this.#tasks.get({ containerId: id, execId }, READ));
    if (answer?.process !== undefined) return this.#corrected(answer.process, execId);
    return heard.get({ id, execId }) ?? (execId === '' ? kept?.get(id) : undefined);
  }

  /** Returns what the control group of a task counts. @throws EngineError not-found when there is none. */
  async metrics(id: string, timeoutMs: number): Promise<CgroupMetrics> {
    const { metrics } = await this.#tasks.metrics({ filters: [`id==${id}`] }, { timeoutMs });
    const data = metrics[0]?.data;
    if (data === undefined) throw notFound(`no statistics for task ${id}`);
    return decodeMetrics(data);
  }

  /** Returns the process ID that a shim has written down, 0 when there is none: one that hangs tells nothing. */
  async #pidOf(id: string): Promise<number> {
    for (const dir of this.#options.bundles ?? []) {
      const text = await readFile(join(dir, id, 'init.pid'), 'utf8').catch(() => '');
      if (/^\d{1,10}$/.test(text)) return Number(text);
    }
    return 0;
  }

  /** Others guess how a process has ended when its shim was lost, but the kernel knows it. */
  async #corrected(process: Process, execId = ''): Promise<Process> {
    if (execId !== '') return process;
    if (process.status === Status.UNKNOWN && process.pid === 0)
      return { ...process, pid: await this.#pidOf(process.id) };
    if (process.status !== Status.STOPPED) return process;
    const exitStatus = (await this.#witnesses.kept?.exitCodeSoon(process.id)) ?? process.exitStatus;
    return { ...process, exitStatus };
  }

  /**
   * Asks for a task again while its shim does not answer containerd: then containerd reports an unknown state without a
   * process ID. That happens on a busy machine and says nothing about the task, which mostly runs. Each question takes
   * containerd 2 s; if the shim never answers, the state stays unknown.
   */
  async #answered(process: Process): Promise<Process | undefined> {
    let found: Process | undefined = await this.#corrected(process);
    for (let asked = 0; found?.status === Status.UNKNOWN && asked < SHIM_QUESTIONS; asked += 1) {
      found = await this.find({ id: process.id, execId: '' });
    }
    return found;
  }
}

export async function unlessNotFound<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (isEngineError(error, 'not-found')) return undefined;
    throw error;
  }
}
