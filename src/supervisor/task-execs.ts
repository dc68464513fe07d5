/**
 * Further processes in tasks. Their shims are called directly where they can be, and tell the exit themselves: each
 * call by way of containerd took a millisecond more. containerd tells the exit, too, which counts when the shim says
 * nothing.
 */
import { create, toBinary } from '@bufbuild/protobuf';
import type { ExecProcess } from '../ports/supervisor.js';
import type { CgroupMoves } from '../sys/process/cgroup-moves.js';
import { step } from '../text/steps.js';
import { packOci } from './any.js';
import type { ExitWatch, ProcessRef } from './exits/exit-watch.js';
import { exitStatus } from './exits/exit-status.js';
import type { UnaryClient } from './grpc-connection.js';
import {
  EmptyResponseSchema,
  ExecRequestSchema,
  StartResponseSchema,
  WaitResponseSchema,
  type ExecRequest,
} from './proto/gen/shim_pb.js';
import type { Tasks } from './proto/gen/tasks_pb.js';
import type { ShimConnection } from './shims/shim-connection.js';
import type { TaskShims } from './shims/task-shims.js';
import { unlessNotFound } from './task-lookup.js';
import type { TaskReports } from './task-reports.js';

export interface TaskExecsOptions {
  readonly tasks: UnaryClient<typeof Tasks>;
  readonly shims: TaskShims;
  readonly exits: ExitWatch;
  readonly cgroupMoves: CgroupMoves;
  readonly reports: Pick<TaskReports, 'pass'>;
  /** Awaits a call to the shim of a task, and throws not-found when that has ended. */
  readonly orEnded: <T>(id: string, call: Promise<T>) => Promise<T>;
}

type NewExec = Omit<ExecRequest, '$typeName'>;

export class TaskExecs {
  readonly #options: TaskExecsOptions;

  constructor(options: TaskExecsOptions) {
    this.#options = options;
  }

  /** Runs a process; resolves when the runtime has returned. On failure nothing is left of it. */
  async run(id: string, execId: string, { process, stdio }: ExecProcess): Promise<{ pid: number }> {
    const { cgroupMoves, exits, orEnded } = this.#options;
    const ref = { id, execId };
    const exec: NewExec = { ...ref, ...stdio, spec: packOci('Process', process) };
    const shim = await this.#options.shims.of(id);
    await orEnded(id, this.#register(shim, exec));
    exits.add(ref);
    try {
      const { pid } = await cgroupMoves.during(() => orEnded(id, this.#start(shim, ref)));
      if (shim !== undefined) void this.#hear(shim, ref, pid);
      return { pid };
    } catch (error) {
      exits.remove(ref);
      await this.delete(ref).catch(() => undefined);
      throw error;
    }
  }

  /** Forgets a process that has ended, or was not started. */
  async delete(ref: ProcessRef): Promise<void> {
    const { exits, shims, tasks } = this.#options;
    const { id, execId } = ref;
    const shim = await shims.of(id);
    const deletion: Promise<unknown> =
      shim === undefined
        ? tasks.deleteProcess({ containerId: id, execId })
        : step('shim.delete', () => shim.ask('Delete', EmptyResponseSchema, ref));
    await unlessNotFound(deletion);
    exits.remove(ref);
  }

  async #register(shim: ShimConnection | undefined, exec: NewExec): Promise<void> {
    if (shim === undefined) {
      const { id: containerId, spec, ...rest } = exec;
      await this.#options.tasks.exec({ containerId, ...rest, ...(spec && { spec }) });
      return;
    }
    const payload = toBinary(ExecRequestSchema, create(ExecRequestSchema, exec));
    await step('shim.exec', () => shim.call('Exec', EmptyResponseSchema, payload));
  }

  #start(shim: ShimConnection | undefined, ref: ProcessRef): Promise<{ pid: number }> {
    if (shim === undefined) return this.#options.tasks.start({ containerId: ref.id, execId: ref.execId });
    return step('shim.start', () => shim.ask('Start', StartResponseSchema, ref));
  }

  /** Reports the exit as the shim tells it. One that has ended or lost the process says nothing. */
  async #hear(shim: ShimConnection, ref: ProcessRef, pid: number): Promise<void> {
    try {
      const { exitStatus: code, exitedAt } = await shim.ask('Wait', WaitResponseSchema, ref);
      this.#options.reports.pass({ type: 'exit', ...ref, pid, exit: exitStatus(code, exitedAt) });
    } catch {
      // containerd tells it.
    }
  }
}
