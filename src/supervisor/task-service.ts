/** Tasks in one containerd namespace, over gRPC. */
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError, notFound } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { CreatedTask, CreateTask, ExecProcess, TaskEvent, TaskInfo, TaskService } from '../ports/supervisor.js';
import type { Any } from '@bufbuild/protobuf/wkt';
import { CgroupMoves } from '../sys/process/cgroup-moves.js';
import { SIGKILL } from '../text/signals.js';
import { packOci } from './any.js';
import { deferred, type Deferred } from './deferred.js';
import { ExitWatch, type ProcessRef } from './exits/exit-watch.js';
import { InitWatch } from './exits/init-watch.js';
import { FailedCreations } from './failed-creations.js';
import { isBrokenOff, isShimLost } from './grpc-error.js';
import type { GrpcConnection, UnaryClient } from './grpc-connection.js';
import type { HeardExits } from './exits/heard-exits.js';
import type { KeptInits } from './exits/kept-inits.js';
import { LostExits } from './exits/lost-exits.js';
import { Unanswered } from './exits/unanswered.js';
import type { CgroupMetrics } from './metrics.js';
import { endShims, hasState, removeOrphans, removeShimSockets, type Realm } from './orphans.js';
import type { ShimPlace } from './shims/pooled-shim.js';
import { Status, type Process } from './proto/gen/task_types_pb.js';
import { Tasks } from './proto/gen/tasks_pb.js';
import { Version } from './proto/gen/version_pb.js';
import { RUNC_SHIM } from './runtime-options.js';
import { ShimPool } from './shims/shim-pool.js';
import { TaskShims } from './shims/task-shims.js';
import { TaskExecs } from './task-execs.js';
import { TaskContainers } from './task-containers.js';
import { taskInfo } from './task-info.js';
import { groupOf, type UnbornTask } from './unborn-tasks.js';
import { READ, TaskLookup, unlessNotFound, type Witnesses } from './task-lookup.js';
import { TaskReports } from './task-reports.js';

// After SIGKILL; should the exit not come, the deletion is only slower.
const EXIT_TIMEOUT_MS = 1_000;

export interface TaskServiceOptions extends Witnesses {
  readonly connection: GrpcConnection;
  readonly logger: Logger;
  /** Finds the shims of these tasks, and the directory where their runtime keeps its state. */
  readonly realm: Realm;
  /** Where shims are that serve one task after another. Default: each task has its own. */
  readonly shims?: (Omit<ShimPlace, 'realm'> & { readonly isDebug: () => boolean }) | undefined;
}

/** The port's tasks. Whoever owns the event stream feeds `report` and, after each new subscription, `reconcile`. */
export class ContainerdTasks implements TaskService {
  /** The records of containers that containerd needs for their tasks. */
  readonly containers: TaskContainers;
  readonly #tasks: UnaryClient<typeof Tasks>;
  readonly #version: UnaryClient<typeof Version>;
  readonly #logger: Logger;
  readonly #realm: Realm;
  readonly #heard: HeardExits;
  readonly #kept: KeptInits | undefined;
  readonly #lookup: TaskLookup;
  readonly #exits = new ExitWatch();
  readonly #inits = new InitWatch({ ask: (id) => this.#lost.hasTold(id), lost: (id) => this.#lost.end(id) });
  readonly #reports: TaskReports;
  readonly #lost: LostExits;
  readonly #unanswered: Unanswered;
  readonly #cgroupMoves = new CgroupMoves();
  /** Tasks that were created but not started, with the promise of their exit, which concerns nobody else. */
  readonly #unstarted = new Map<string, Deferred<void>>();
  /** Tasks that are served by the shims of others. */
  readonly #shims = new Map<string, string>();
  readonly #pool: ShimPool | undefined;
  readonly #taskShims: TaskShims;
  readonly #execs: TaskExecs;
  readonly #failed: FailedCreations;

  constructor({ connection, logger, realm, heard, kept, shims }: TaskServiceOptions) {
    this.containers = new TaskContainers(connection, logger, realm.runcRoot);
    this.#tasks = connection.unary(Tasks);
    this.#version = connection.unary(Version);
    this.#logger = logger;
    this.#realm = realm;
    this.#heard = heard;
    this.#kept = kept;
    const { containers } = this;
    this.#lookup = new TaskLookup({ heard, kept, tasks: this.#tasks, containers, bundles: realm.taskDirs });
    const remove = (id: string, isBroken: boolean): Promise<void> =>
      this.#delete(id, { isBroken }).then(() => this.#forget(id));
    this.#failed = new FailedCreations({ logger, remove });
    const common = { logger, heard, kept, exits: this.#exits, lookup: this.#lookup };
    this.#reports = new TaskReports(common);
    this.#lost = new LostExits({
      ...common,
      reports: this.#reports,
      report: (event) => this.report(event),
      endShim: (id) => this.#endShim(id),
      remove: (id) => this.#removeForgotten(id, true),
      unwatch: (id) => this.#inits.remove(id),
    });
    this.#unanswered = new Unanswered({
      ...common,
      ended: (process, found) => this.#lost.reportFound(process, found),
      // Its container counts as it did for the daemon before this one, and may have been paused or resumed since.
      alive: (process) =>
        this.report({ type: this.#inform(process).status === 'paused' ? 'paused' : 'resumed', id: process.id }),
    });
    const lost = (id: string): void => {
      // One that is just being created fails, and who creates it clears up.
      if (this.#exits.has({ id, execId: '' }) || this.#unstarted.has(id)) void this.#lost.shimEnded(id);
    };
    this.#pool = shims && new ShimPool({ ...shims, realm, connection, logger, lost });
    this.#taskShims = new TaskShims(realm.taskDirs?.[0], this.#pool);
    const orEnded = <T>(id: string, call: Promise<T>): Promise<T> => this.#orEnded(id, call);
    const called = { tasks: this.#tasks, shims: this.#taskShims, cgroupMoves: this.#cgroupMoves };
    this.#execs = new TaskExecs({ ...called, exits: this.#exits, reports: this.#reports, orEnded });
  }

  async create(request: CreateTask): Promise<CreatedTask> {
    const { id, stdio, shimOf, runtime } = request;
    const unborn = { id, group: groupOf(request.spec) };
    await this.#failed.clear(id);
    const options = await this.#createContainer(request, unborn);
    if (options === undefined && shimOf !== undefined && runtime.type === RUNC_SHIM) this.#shims.set(id, shimOf);
    this.#heard.forget(id);
    this.#kept?.remove(id);
    this.#unanswered.forget(id);
    try {
      const task = { containerId: id, ...stdio, ...(options && { options }) };
      const { pid } = await this.#cgroupMoves.during(() => this.#tasks.create(task));
      this.#unstarted.set(id, deferred());
      this.#inits.add(id, pid, { mayBeGone: false });
      // The processes of other shims are no containers, and may end with other codes.
      if (runtime.type === RUNC_SHIM) this.#kept?.add(id, pid);
      return { pid, hasReusedShim: options !== undefined };
    } catch (error) {
      if (isBrokenOff(error)) this.#failed.breakOff(unborn);
      await this.#failed.remove(unborn);
      throw error;
    }
  }

  async start(id: string): Promise<void> {
    const init = { id, execId: '' };
    this.#unstarted.delete(id);
    this.#exits.add(init);
    try {
      await this.#kept?.hold(id);
      await this.#tasks.start({ containerId: id });
    } catch (error) {
      this.#exits.remove(init);
      this.#unstarted.set(id, deferred());
      throw error;
    }
  }

  async kill(id: string, signal: number, options: { all?: boolean; execId?: string } = {}): Promise<void> {
    const killed = this.#orEnded(id, this.#tasks.kill({ containerId: id, signal, ...options }));
    const mayKill = signal === SIGKILL && options.execId === undefined && this.#realm.taskDirs !== undefined;
    await (mayKill ? this.#inits.killed(id, killed) : killed);
  }

  async pause(id: string): Promise<void> {
    await this.#tasks.pause({ containerId: id });
  }

  async resume(id: string): Promise<void> {
    await this.#tasks.resume({ containerId: id });
  }

  async resize(id: string, size: { width: number; height: number }, execId = ''): Promise<void> {
    await this.#tasks.resizePty({ containerId: id, execId, width: size.width, height: size.height });
  }

  async closeStdin(id: string, execId = ''): Promise<void> {
    await this.#tasks.closeIO({ containerId: id, execId, stdin: true });
  }

  exec(id: string, execId: string, process: ExecProcess): Promise<{ pid: number }> {
    return this.#execs.run(id, execId, process);
  }

  deleteExec(id: string, execId: string): Promise<void> {
    return this.#execs.delete({ id, execId });
  }

  async pids(id: string): Promise<number[]> {
    const { processes } = await this.#tasks.listPids({ containerId: id }, READ);
    return processes.map(({ pid }) => pid);
  }

  async update(id: string, resources: Record<string, unknown>): Promise<void> {
    await this.#tasks.update({ containerId: id, resources: packOci('LinuxResources', resources) });
  }

  async delete(id: string): Promise<void> {
    await this.clear(id);
    this.#forget(id);
  }

  /** Deletes what is left of a task, but how it ended stays known. */
  async clear(id: string): Promise<void> {
    try {
      await this.#delete(id);
    } catch (error) {
      // When containerd has found no shim, it has forgotten the task all the same.
      if (!isBrokenOff(error) && !isShimLost(error)) throw error;
      await this.#delete(id, { isBroken: true });
    }
  }

  /** @param isBroken says that containerd or the shim died over this task, which containerd may have forgotten. */
  async #delete(id: string, { isBroken = false } = {}): Promise<void> {
    await this.#endUnstarted(id);
    // containerd would let the container go first, and its task could then be reached by nobody.
    const deleted = await unlessNotFound(this.#tasks.delete({ containerId: id }));
    if (deleted === undefined) await this.#removeForgotten(id, isBroken);
    else this.#pool?.giveBack(id);
    this.#taskShims.forget(id);
    this.containers.remove(id);
  }

  #forget(id: string): void {
    this.#heard.forget(id);
    this.#kept?.remove(id);
    this.#exits.remove({ id, execId: '' });
    this.#inits.remove(id);
    this.#unanswered.forget(id);
    this.#shims.delete(id);
    this.#reports.forget(id);
  }

  async list(isEnough?: (id: string) => boolean): Promise<TaskInfo[]> {
    return (await this.#lookup.all(isEnough)).map((process) => {
      const info = this.#inform(process);
      return info.status === 'stopped' && this.#kept?.lacks(info.id) === true ? { ...info, isUnwitnessed: true } : info;
    });
  }

  async get(id: string, mayBeUnknown?: boolean): Promise<TaskInfo | undefined> {
    const process = await this.#lookup.get(id, mayBeUnknown);
    return process && this.#inform(process);
  }

  metrics(id: string): Promise<CgroupMetrics> {
    return this.#lookup.metrics(id, READ.timeoutMs);
  }

  /** Closes files and ends what no task needs; tasks that are made afterwards take longer. */
  async close(): Promise<void> {
    this.#inits.close();
    this.#unanswered.close();
    this.#kept?.close();
    this.#taskShims.close();
    await Promise.all([this.#pool?.close(), this.#cgroupMoves.close()]);
  }

  /** Takes over the shims that an earlier daemon has left, and removes the tasks whose shims have ended meanwhile. */
  async adoptShims(): Promise<void> {
    for (const id of (await this.#pool?.adopt()) ?? []) {
      await this.clear(id);
      await this.#kept?.exitCodeSoon(id);
    }
  }

  /** Returns the processes whose exit was not reported yet. */
  awaited(): ProcessRef[] {
    return this.#exits.awaited();
  }

  onEvent(listener: (event: TaskEvent) => void): () => void {
    return this.#reports.onEvent(listener);
  }

  async version(): Promise<{ version: string; revision: string }> {
    const { version, revision } = await this.#version.version({}, READ);
    return { version, revision };
  }

  /** Passes an event on to the listeners, unless it is the exit of a process that was not started. */
  report(event: TaskEvent): void {
    if (event.type !== 'exit') return this.#reports.pass(event);
    if (event.execId !== '') return this.#exits.has(event) ? this.#reports.pass(event) : undefined;
    const { id } = event;
    const unstarted = this.#unstarted.get(id);
    unstarted?.resolve();
    this.#inits.remove(id);
    if (!unstarted) this.#reports.passEnd(event);
  }

  /**
   * Reports the exits that the broken event stream did not. Call it while a new stream is in force, so that nothing
   * falls between the two. A process whose shim does not answer is asked for again until it does.
   */
  async reconcile(): Promise<void> {
    await this.#failed.clearAll();
    if (this.#pool !== undefined) this.#pool.use((await this.version()).version);
    const awaited = this.#exits.awaited();
    if (awaited.length === 0) return;
    const inits = new Map((await this.#lookup.listed()).map((process) => [process.id, process]));
    const listed = ({ id, execId }: ProcessRef): Process | undefined => (execId === '' ? inits.get(id) : undefined);
    await Promise.all(awaited.map((process) => this.#unanswered.ask(process, listed(process))));
  }

  /** Returns the options that the task gets as well when it is served by a shim of the pool. */
  async #createContainer(task: CreateTask, unborn: UnbornTask): Promise<Any | undefined> {
    const { id } = task;
    const create = async (): Promise<Any | undefined> => {
      const shim = await this.#pool?.take(task);
      try {
        const options = await this.containers.create(task, shim);
        return shim && options;
      } catch (error) {
        if (shim !== undefined) this.#pool?.giveBack(id);
        throw error;
      }
    };
    try {
      return await create();
    } catch (error) {
      if (isEngineError(error, 'unavailable')) this.#failed.breakOff(unborn);
      if (!isEngineError(error, 'conflict')) throw error;
      // Left by an earlier life of the daemon. A task that still runs refuses this, and so the creation.
      await this.delete(id);
      return create();
    }
  }

  /**
   * Kills what was created and never ran: the deletion of a waiting init process takes the shim 2 s, because it waits
   * for output that cannot end before.
   */
  async #endUnstarted(id: string): Promise<void> {
    const exit = this.#unstarted.get(id);
    if (exit === undefined) return;
    const killed = await unlessNotFound(this.#tasks.kill({ containerId: id, signal: SIGKILL })).catch(
      (error: unknown) => {
        // containerd kills it as soon as it has noticed that the shim is gone.
        if (isShimLost(error)) return true;
        throw error;
      },
    );
    if (killed) await Promise.race([exit.promise, delay(EXIT_TIMEOUT_MS)]);
    this.#unstarted.delete(id);
  }

  /**
   * Removes what is left of a task that containerd does not know. A shim that was started in vain answers nobody; only
   * where containerd died, or did not clean up after a shim, there can be one, so that other deletions need not look at
   * all processes.
   */
  async #removeForgotten(id: string, isBroken: boolean): Promise<void> {
    await this.#pool?.discard(id, isBroken);
    if (!isBroken && !hasState(this.#realm, id)) return removeShimSockets(this.#realm, id);
    const found = await removeOrphans(this.#realm, (other) => other === id);
    await removeShimSockets(this.#realm, id);
    if (found.length > 0) this.#logger.info({ id }, 'removed what containerd had forgotten of a task');
  }

  /** Ends the shim of a task. containerd cleans up after those that it has started itself. */
  async #endShim(id: string): Promise<void> {
    if (await this.#pool?.discard(id, true)) return this.#removeForgotten(id, true);
    const shim = this.#shims.get(id) ?? id;
    await endShims(this.#realm, (other) => other === shim);
  }

  /** A caller that is told about a living task will also be told about its exit. */
  #inform(process: Process): TaskInfo {
    const info = taskInfo(process);
    const init = { id: info.id, execId: '' };
    // Made by a daemon that died before it started it.
    if (info.status === 'created' && !this.#exits.has(init) && !this.#unstarted.has(info.id))
      this.#unstarted.set(info.id, deferred());
    else if (info.status !== 'stopped' && info.status !== 'created') {
      this.#exits.ensure(init);
      // The processes of an external containerd may have other numbers.
      this.#inits.add(info.id, info.pid, { mayBeGone: this.#realm.taskDirs !== undefined });
      if (info.status === 'unknown') this.#unanswered.add(init);
    }
    return info;
  }

  /**
   * Awaits a call to the shim of a task. When somebody has killed the shim, containerd kills the task as soon as it has
   * noticed that, and reports its exit: until then, the task has ended for all callers.
   */
  async #orEnded<T>(id: string, call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      if (!isShimLost(error)) throw error;
      if (!(await this.#hasEnded(id))) throw error;
      const { details } = error;
      throw notFound(`the shim of task ${id} has ended`, { cause: error, details });
    }
  }

  /** Tells whether a task whose shim does not answer counts as ended. */
  async #hasEnded(id: string): Promise<boolean> {
    if (this.#pool?.hasLost(id) === true) return true;
    const task = await this.#lookup.find({ id, execId: '' }).catch(() => ({ status: Status.UNKNOWN }));
    return task === undefined || task.status === Status.STOPPED;
  }
}
