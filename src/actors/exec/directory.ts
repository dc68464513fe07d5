/** The directory of exec processes: views by id, the actors behind them, and their byte streams. */
import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { conflict, type EngineError, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import { AttachHub } from '../../logs/attach/attach-hub.js';
import type { ExitStatus, ProcessStdio, TaskService } from '../../ports/supervisor.js';
import type { Logger } from '../../ports/logger.js';
import type { ContainerRecord } from '../container/container.record.js';
import type { StdioFactory } from '../container/deps.js';
import type { PauseGate } from '../container/life/pause-gate.js';
import { notRunning } from '../container/life/ended-task.js';
import { execError } from '../container/life/start-error.js';
import { SIGKILL } from '../../text/signals.js';
import type { Collection, CollectionEvent } from '../kit/collection.js';
import { ActorDirectory, type FieldsOf } from '../kit/directory.js';
import { unlessAborted } from '../kit/pace.js';
import type { Replies } from '../kit/replies.js';
import { Slots } from '../kit/slots.js';
import { createExecMachine, type ExecEffects, type ExecStart } from './exec.machine.js';
import type { ExecCommand, TerminalSize } from './exec.messages.js';
import type { ExecConfig, ExecRecord } from './exec.record.js';

type ExecMachine = ReturnType<typeof createExecMachine>;

export interface ExecDeps {
  readonly log: Logger;
  readonly replies: Replies;
  readonly tasks: TaskService;
  readonly stdio: StdioFactory;
  readonly ioRoot: string;
  readonly pauseGate: PauseGate;
  readonly container: (id: string) => ContainerRecord | undefined;
  /** OCI `process` object. */
  readonly buildProcess: (
    container: ContainerRecord,
    config: ExecConfig,
    tty: boolean,
    size: TerminalSize | undefined,
  ) => Promise<Record<string, unknown>>;
  /** Rejects with invalid for a user that the container's files do not know. */
  readonly checkUser: (container: ContainerRecord, user: string) => Promise<void>;
  readonly emit: (action: string, container: ContainerRecord, attributes: Readonly<Record<string, string>>) => void;
}

/** How long an exited exec can still be inspected. */
const RETENTION_MS = 5 * 60_000;
/** A background child may hold the output of an exec open for ever. */
const DRAIN_LIMIT_MS = 2000;
/**
 * The shim starts one exec at a time and tells of exits in between, in the order of arrival. It keeps 32 exits that it
 * has not told yet. After that it reaps one process a second, and some ten waiting starts are enough to come to that.
 */
const MAX_STARTS_PER_CONTAINER = 4;

/** A process that ended with its container has this exit code. */
const KILLED_EXIT_CODE = 137;
/** After this time the exits that the supervisor knows of have been reported. */
const UNTOLD_EXIT_MS = 2000;

type ExecOutcome = Partial<Pick<ExecRecord, 'pid' | 'exitCode' | 'running'>>;

/** The streams of one exec. */
interface ExecIo {
  readonly hub: AttachHub;
  stdio: ProcessStdio | undefined;
  stdin: Socket | undefined;
}

export class ExecDirectory {
  readonly #views = new Map<string, ExecRecord>();
  readonly #ios = new Map<string, ExecIo>();
  /** These execs are killed as soon as they run. */
  readonly #unwanted = new Set<string>();
  readonly #starts = new Map<string, Slots>();
  /** Results of starts, kept for an actor that crashes before it hears of them. */
  readonly #started = new Map<string, Promise<ExecOutcome>>();
  /** Times at which the run of the container began that an exec belongs to. */
  readonly #runs = new Map<string, string>();
  readonly #actors: ActorDirectory<ExecMachine, ExecCommand>;

  constructor(private readonly deps: ExecDeps) {
    const machine = createExecMachine(
      this.#effects(),
      { publish: (record) => this.#publish(record), emit: (action, record) => this.#emit(action, record) },
      deps.replies,
    );
    this.#actors = new ActorDirectory({
      kind: 'exec',
      logic: machine,
      replies: deps.replies,
      missing: noSuchExec,
      revive: (id) => this.#revive(id),
      onCrash: (id, error, revived) => deps.log.error({ err: error, exec: id, revived }, 'exec actor crashed'),
    });
  }

  get collection(): Collection<ExecMachine> {
    return this.#actors.collection;
  }

  /** This must be called when the root actor runs: `send` takes spawn events to it. */
  connect(send: (event: CollectionEvent<ExecMachine>) => void): void {
    this.#actors.connect(send);
  }

  /** Finds an exec by its id, which is never abbreviated. Throws not-found `No such exec instance: X`. */
  find(id: string): ExecRecord {
    const record = this.#views.get(id);
    if (!record) throw noSuchExec(id);
    return record;
  }

  /** Returns the ids of a container's execs that have not ended, for inspect. */
  idsOf(containerId: string): string[] {
    return [...this.#views.values()]
      .filter((record) => record.containerId === containerId && record.exitCode === null)
      .map(({ id }) => id);
  }

  /**
   * Checks the user of an exec.
   * @throws EngineError invalid `unable to find user X: no matching entries in passwd file`.
   */
  async checkUser(container: ContainerRecord, user: string): Promise<void> {
    if (user !== '') await this.deps.checkUser(container, user);
  }

  /** Registers an exec in a running container. */
  create(container: ContainerRecord, config: ExecConfig): ExecRecord {
    if (config.Cmd.length === 0 || config.Cmd[0] === '') throw invalid('No exec command specified');
    requireRunning(container, container.id);
    const id = randomBytes(32).toString('hex');
    const record: ExecRecord = { id, containerId: container.id, config, running: false, exitCode: null, pid: 0 };
    this.#views.set(id, record);
    this.#ios.set(id, { hub: new AttachHub(), stdio: undefined, stdin: undefined });
    this.#actors.spawn(id, record);
    // Behind the reply, which need not wait until a thread has been told to write the event.
    queueMicrotask(() => this.deps.emit(`exec_create: ${actionText(config.Cmd)}`, container, { execID: id }));
    return record;
  }

  /** Starts an exec; resolves when the process runs. */
  async start(id: string, terminal: FieldsOf<ExecCommand, 'exec.start'>, signal?: AbortSignal): Promise<void> {
    return this.#actors.ask(this.find(id).id, 'exec.start', terminal, { signal });
  }

  /** Resolves with the exit code when the process has ended and its output was read. */
  async wait(id: string, signal?: AbortSignal): Promise<number> {
    return this.#actors.ask(this.find(id).id, 'exec.wait', {}, { signal });
  }

  async resize(id: string, size: TerminalSize): Promise<void> {
    return this.#actors.ask(this.find(id).id, 'exec.resize', { size });
  }

  exited(id: string, exit: ExitStatus): void {
    this.#actors.tell(id, { type: 'exec.exited', exit });
  }

  hub(id: string): AttachHub {
    return this.#io(id).hub;
  }

  /** Returns the write end of stdin when the process runs. */
  stdin(id: string): Socket | undefined {
    return this.#io(id).stdin;
  }

  /** Closes stdin: the process reads EOF from now on. */
  async closeStdin(record: ExecRecord): Promise<void> {
    const { stdin } = this.#io(record.id);
    if (!stdin || stdin.destroyed) return;
    await new Promise<void>((resolve) => stdin.once('close', () => resolve()).end());
    // The process may have ended meanwhile; then there is nothing left to close.
    await this.deps.tasks.closeStdin(record.containerId, record.id).catch(() => undefined);
  }

  /** Kills an exec that was started, if it has not ended yet, and forgets it when it has. */
  async discard(id: string): Promise<void> {
    const record = this.#views.get(id);
    if (!record) return;
    if (record.exitCode === null) {
      this.#unwanted.add(id);
      if (record.running) this.#kill(record);
    }
    // The wait is rejected when the container was removed meanwhile, and the exec with it.
    await this.wait(id).catch(() => undefined);
    this.#remove(id);
  }

  /**
   * Ends the execs of a container whose task is gone, and with it every process: execs whose exit is not reported soon
   * count as ended. An exec that is still being started is looked at again when its start is over.
   */
  endOf(containerId: string): void {
    for (const record of this.#views.values())
      if (record.containerId === containerId && record.running) this.#endLater(record.id);
  }

  /** Forgets the execs of a container that nobody has started; the container has ended, so nobody can any more. */
  removeUnstarted(containerId: string): void {
    for (const { id, containerId: owner, running, exitCode } of this.#views.values())
      if (owner === containerId && !running && exitCode === null && !this.#started.has(id)) this.#remove(id);
  }

  #endLater(id: string): void {
    setTimeout(() => {
      if (this.#views.get(id)?.running) this.exited(id, { exitCode: KILLED_EXIT_CODE, exitedAt: new Date() });
    }, UNTOLD_EXIT_MS).unref();
  }

  /** Decides where the actor of an exec begins after a crash: the start that it began may have succeeded. */
  async #revive(id: string): Promise<ExecRecord | undefined> {
    const started = await this.#started
      .get(id)
      ?.catch((): ExecOutcome => ({ exitCode: KILLED_EXIT_CODE, running: false }));
    const record = this.#views.get(id);
    if (!record || !started || record.running || record.exitCode !== null) return record;
    const known = { ...record, ...started };
    this.#publish(known);
    return known;
  }

  /** Forgets the execs of a container that is gone. */
  removeOf(containerId: string): void {
    for (const record of this.#views.values()) if (record.containerId === containerId) this.#remove(record.id);
    this.#starts.delete(containerId);
  }

  #io(id: string): ExecIo {
    const io = this.#ios.get(id);
    if (!io) throw noSuchExec(id);
    return io;
  }

  #publish(record: ExecRecord): void {
    this.#views.set(record.id, record);
    if (record.running && this.#unwanted.has(record.id)) this.#kill(record);
    const run = this.deps.container(record.containerId)?.state;
    if (record.running && (!run || run.pid === 0 || run.startedAt !== this.#runs.get(record.id)))
      this.#endLater(record.id);
    if (record.exitCode !== null) setTimeout(() => this.#remove(record.id), RETENTION_MS).unref();
  }

  #kill({ id, containerId }: ExecRecord): void {
    // An exec that ended meanwhile needs no signal. If the signal fails otherwise, the exec ends with the container.
    this.deps.tasks.kill(containerId, SIGKILL, { execId: id }).catch(() => undefined);
  }

  #remove(id: string): void {
    this.#views.delete(id);
    this.#unwanted.delete(id);
    this.#started.delete(id);
    this.#runs.delete(id);
    const io = this.#ios.get(id);
    this.#ios.delete(id);
    io?.hub.end();
    void io?.stdio?.close();
    this.#actors.stop(id);
  }

  #emit(action: 'exec_start' | 'exec_die', record: ExecRecord): void {
    const container = this.deps.container(record.containerId);
    if (!container) return;
    if (action === 'exec_start')
      this.deps.emit(`exec_start: ${actionText(record.config.Cmd)}`, container, { execID: record.id });
    else this.deps.emit(action, container, { execID: record.id, exitCode: String(record.exitCode) });
  }

  #effects(): ExecEffects {
    const { tasks } = this.deps;
    return {
      start: async (input, signal, pace) => {
        const release = await pace.unlimited(this.#startsOf(input.record.containerId).take(signal));
        const starting = unlessAborted(signal, this.#start(input, signal)).finally(release);
        this.#started.set(
          input.record.id,
          starting.then(({ pid }) => ({ pid, running: true })),
        );
        this.#started.get(input.record.id)?.catch(() => undefined);
        return starting;
      },
      drain: async (record) => {
        const io = this.#ios.get(record.id);
        await io?.stdio?.drained(DRAIN_LIMIT_MS);
        io?.hub.end();
        io?.stdin?.destroy();
        // The exit goes out before anything else is done, because somebody may wait for it.
        await nextTurn();
        try {
          await tasks.deleteExec(record.containerId, record.id);
        } finally {
          await io?.stdio?.close();
          // The record outlives the process by minutes, and many execs may end in these.
          if (io) io.stdio = io.stdin = undefined;
        }
      },
      resize: (record, size) => tasks.resize(record.containerId, size, record.id),
    };
  }

  #startsOf(containerId: string): Slots {
    const slots = this.#starts.get(containerId) ?? new Slots(MAX_STARTS_PER_CONTAINER);
    this.#starts.set(containerId, slots);
    return slots;
  }

  async #start({ record, tty, size }: ExecStart, signal: AbortSignal): Promise<{ pid: number }> {
    const { tasks, stdio } = this.deps;
    const container = this.deps.container(record.containerId);
    if (!container) throw notFound(`No such container: ${record.containerId}`);
    requireRunning(container, container.id);
    this.#runs.set(record.id, container.state.startedAt);
    const io = this.#io(record.id);
    const { config } = record;
    const building = this.deps.buildProcess(container, config, tty, size);
    building.catch(() => undefined);
    const opened = await stdio.create({
      dir: `${this.deps.ioRoot}/${record.containerId}/${record.id}`,
      stdin: config.AttachStdin,
      stdout: true,
      stderr: !tty,
      terminal: tty,
    });
    io.stdio = opened;
    try {
      pump(opened, io.hub);
      const process = await building;
      const { pid } = await this.deps.pauseGate.start(record.containerId, () => {
        requireRunning(this.deps.container(container.id) ?? container, container.id);
        signal.throwIfAborted();
        const executing = tasks
          .exec(record.containerId, record.id, { process, stdio: opened.paths })
          .catch((error: unknown) => {
            throw isEngineError(error, 'not-found') ? notRunning(record.containerId, error.details) : error;
          });
        // A process that runs although its start was given up is ended.
        executing.then(
          () => signal.aborted && this.#kill(record),
          () => undefined,
        );
        return unlessAborted(signal, executing);
      });
      io.stdin = await opened.openStdin();
      io.stdin?.on('error', () => io.stdin?.destroy());
      return { pid };
    } catch (error) {
      await opened.close();
      throw execError(error);
    }
  }
}

function noSuchExec(id: string): EngineError {
  return notFound(`No such exec instance: ${id}`, { code: 'NO_SUCH_EXEC' });
}

function pump(stdio: ProcessStdio, hub: AttachHub): void {
  for (const stream of ['stdout', 'stderr'] as const) {
    const source = stdio[stream];
    source?.on('data', (chunk: Buffer) => {
      if (hub.write(stream, chunk)) return;
      source.pause();
      hub.onceDrained(() => source.resume());
    });
    source?.on('error', () => source.destroy());
  }
}

/** Throws conflict with the Engine API's texts unless the container can run another process. */
export function requireRunning(container: ContainerRecord, shown: string): void {
  const { status } = container.state;
  if (status === 'paused') throw conflict(`Container ${shown} is paused, unpause the container before exec`);
  if (status === 'restarting')
    throw conflict(`Container ${container.id} is restarting, wait until the container is running`);
  if (status !== 'running')
    throw conflict(`container ${container.id} is not running`, { code: 'CONTAINER_NOT_RUNNING' });
}

/** Returns the command of an exec as its events show it: a blank follows the program also where it has no arguments. */
function actionText([program = '', ...args]: readonly string[]): string {
  return `${program} ${args.join(' ')}`;
}
