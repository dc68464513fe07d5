/** The processes of managed plugins: tasks of the supervisor in a namespace of their own, named by the plugin's ID. */
import { mkdir, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { deadline, isEngineError, unavailable } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import type { PluginFiles, PluginRecord } from '../../ports/managed-plugin.js';
import type { ExitStatus, OciSpec, ProcessStdio, RuntimeChoice, TaskService } from '../../ports/supervisor.js';
import { makeDirectories } from '../../sys/files/make-directories.js';
import { detachMount, mountFileSystem, mountPointsBelow } from '../../sys/mount/mount.js';
import { connectPinned } from '../../sys/net/pinned-socket.js';
import { SIGKILL } from '../../text/signals.js';
import type { StdioFactory } from '../container/deps.js';
import type { Pace } from '../kit/pace.js';
import { PluginOutput } from './plugin-output.js';

export interface PluginProcessDeps {
  readonly log: Logger;
  /** Resolves with the tasks in the namespace of plugins, when the supervisor serves them. */
  readonly tasks: () => Promise<TaskService>;
  readonly stdio: StdioFactory;
  readonly files: (record: PluginRecord) => PluginFiles;
  /** Directory below which each plugin has its socket, its FIFOs and, as log driver, those of its logs. */
  readonly runRoot: string;
  readonly runtime: () => RuntimeChoice;
  readonly buildSpec: (
    record: PluginRecord,
    places: { readonly files: PluginFiles; readonly socketDir: string; readonly loggingDir: string },
  ) => Promise<OciSpec>;
}

interface Live {
  readonly stdio: ProcessStdio;
  readonly output: PluginOutput;
  readonly ended: Promise<ExitStatus>;
  readonly end: (exit: ExitStatus) => void;
}

/** A plugin must listen within this time. */
const LISTEN_MS = 30_000;
/** A plugin that was asked to end by SIGTERM is killed after this time. */
const STOP_MS = 10_000;
const DRAIN_MS = 500;
const FIRST_LOOK_MS = 10;
const LONGEST_LOOK_MS = 200;
const SIGTERM = 15;
// linux/mount.h
const MS_BIND = 4096;
const MS_REC = 16384;
const MS_SHARED = 1 << 20;

export class PluginProcesses {
  readonly #lives = new Map<string, Live>();

  constructor(private readonly deps: PluginProcessDeps) {}

  socketOf({ id, config }: PluginRecord): string {
    return join(this.#socketDir(id), config.Interface.Socket);
  }

  loggingDir(id: string): string {
    return join(this.#runDir(id), 'logging');
  }

  /** Hears of the end of a plugin's process. */
  exited(id: string, exit: ExitStatus): void {
    this.#lives.get(id)?.end(exit);
  }

  /**
   * Starts a plugin and waits until it listens. When that fails, nothing of it is left.
   * @throws EngineError deadline for one that never listens, unavailable for one that ends, others of the runtime.
   */
  async start(record: PluginRecord, signal: AbortSignal, pace: Pace): Promise<void> {
    try {
      await this.#launch(record, signal, pace);
    } catch (error) {
      await this.stop(record).catch((failure: unknown) =>
        this.deps.log.error({ err: failure, plugin: record.name }, 'what is left of the plugin is not removed'),
      );
      throw error;
    }
  }

  /** Takes over the process of an earlier daemon. Returns false if there is none that runs. */
  async adopt(record: PluginRecord, signal: AbortSignal): Promise<boolean> {
    const { id } = record;
    const tasks = await this.deps.tasks();
    const task = await tasks.get(id);
    if (task?.status !== 'running') return false;
    this.#attach(record, await this.deps.stdio.reopen(task.stdio));
    await this.#listens(record, signal);
    return true;
  }

  /** Ends a plugin, and removes what the process had: its task, its socket, what it mounted. Idempotent. */
  async stop(record: PluginRecord): Promise<void> {
    const { id } = record;
    const tasks = await this.deps.tasks();
    const live = this.#lives.get(id);
    const task = await tasks.get(id);
    if (task?.status === 'running' || task?.status === 'paused') {
      await tasks.kill(id, SIGTERM).catch(unlessGone);
      const timer = new AbortController();
      const ended = live?.ended ?? this.#gone(tasks, id, timer.signal);
      await Promise.race([ended, delay(STOP_MS, undefined, { signal: timer.signal }).catch(() => undefined)]);
      timer.abort();
      await tasks.kill(id, SIGKILL, { all: true }).catch(unlessGone);
    }
    await live?.stdio.drained(DRAIN_MS);
    await tasks.delete(id);
    await live?.stdio.close();
    this.#lives.delete(id);
    await rm(this.#runDir(id), { recursive: true, force: true });
    await this.#unmount(record);
  }

  /** Lets go of the processes, which go on without the daemon. */
  async leave(): Promise<void> {
    for (const { stdio } of this.#lives.values()) {
      stdio.stdout?.destroy();
      stdio.stderr?.destroy();
    }
    await Promise.resolve();
  }

  async #launch(record: PluginRecord, signal: AbortSignal, pace: Pace): Promise<void> {
    const { id } = record;
    const tasks = await this.deps.tasks();
    const files = this.deps.files(record);
    await this.#prepare(record, files);
    const places = { files, socketDir: this.#socketDir(id), loggingDir: this.loggingDir(id) };
    const spec = await this.deps.buildSpec(record, places);
    // Those of a process that has ended by itself.
    await this.#lives.get(id)?.stdio.close();
    const stdio = await this.deps.stdio.create({
      dir: join(this.#runDir(id), 'io'),
      stdin: false,
      stdout: true,
      stderr: true,
      terminal: false,
    });
    this.#attach(record, stdio);
    await tasks.create({ id, spec, runtime: this.deps.runtime(), stdio: stdio.paths });
    signal.throwIfAborted();
    await tasks.start(id);
    await pace.unlimited(this.#listens(record, signal));
  }

  async #prepare({ id, config }: PluginRecord, { propagated }: PluginFiles): Promise<void> {
    const socketDir = this.#socketDir(id);
    await rm(socketDir, { recursive: true, force: true });
    for (const dir of [socketDir, this.loggingDir(id)]) await makeDirectories(dir, { mode: 0o700 });
    if (config.PropagatedMount === '') return;
    await mkdir(propagated, { recursive: true, mode: 0o755 });
    await mountFileSystem(propagated, propagated, '', '', MS_BIND | MS_REC);
    await mountFileSystem('', propagated, '', '', MS_SHARED | MS_REC);
  }

  #attach({ id, name }: PluginRecord, stdio: ProcessStdio): void {
    const output = new PluginOutput(this.deps.log, name);
    output.follow(stdio.stdout);
    output.follow(stdio.stderr);
    let end: Live['end'] = () => undefined;
    const ended = new Promise<ExitStatus>((resolve) => (end = resolve));
    this.#lives.set(id, { stdio, output, ended, end });
  }

  /** Resolves when the plugin takes connections. */
  async #listens(record: PluginRecord, signal: AbortSignal): Promise<void> {
    const live = this.#lives.get(record.id);
    const socket = this.socketOf(record);
    let exit: ExitStatus | undefined;
    void live?.ended.then((status) => (exit = status));
    const end = performance.now() + LISTEN_MS;
    for (let pauseMs = FIRST_LOOK_MS; !(await isListening(socket)); pauseMs = Math.min(pauseMs * 2, LONGEST_LOOK_MS)) {
      signal.throwIfAborted();
      if (exit !== undefined) {
        await live?.stdio.drained(DRAIN_MS);
        const words = live?.output.lastWords() ?? '';
        throw unavailable(
          `plugin ${record.name} ended with exit code ${exit.exitCode} before it listened on its socket` +
            (words === '' ? '' : `: ${words}`),
          { code: 'PLUGIN_ENDED' },
        );
      }
      if (performance.now() > end)
        throw deadline(
          `plugin ${record.name} does not listen: dial unix ${socket}: ` +
            `no connection within ${LISTEN_MS / 1000} seconds`,
          { code: 'PLUGIN_SILENT' },
        );
      await delay(pauseMs);
    }
  }

  /** Resolves when a process that nobody here follows has ended. */
  async #gone(tasks: TaskService, id: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await tasks.get(id))?.status === 'running') await delay(LONGEST_LOOK_MS);
  }

  async #unmount(record: PluginRecord): Promise<void> {
    const { propagated } = this.deps.files(record);
    for (const point of (await mountPointsBelow(propagated)).toReversed()) await detachMount(point);
    while (await detachMount(propagated)) continue;
  }

  /** The address of a socket is short, so the directory has only a part of the ID. */
  #runDir(id: string): string {
    return join(this.deps.runRoot, id.slice(0, 16));
  }

  #socketDir(id: string): string {
    return join(this.#runDir(id), 's');
  }
}

async function isListening(path: string): Promise<boolean> {
  let socket: Socket;
  try {
    socket = connectPinned(path);
  } catch {
    return false;
  }
  return new Promise((resolve) => {
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

function unlessGone(error: unknown): void {
  if (!isEngineError(error, 'not-found')) throw error;
}
