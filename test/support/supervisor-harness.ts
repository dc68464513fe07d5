/** A supervisor of the tests' own: its directories, its containers, and the traces that it must not leave. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Logger } from '../../src/ports/logger.js';
import type { ExitStatus, ProcessStdio, SupervisorProcess, TaskEvent } from '../../src/ports/supervisor.js';
import { findShims, shimSockets } from '../../src/supervisor/orphans.js';
import { createStdio } from '../../src/supervisor/stdio/stdio.js';
import { createSupervisor, type SupervisorOptions } from '../../src/supervisor/supervisor.js';
import { makeRootfs, ociSpec } from './oci-bundle.js';

const NAMESPACE = 'engine';
const CGROUPS = '/sys/fs/cgroup';
const TASKS = 'io.containerd.runtime.v2.task';
const RUNC = { type: 'io.containerd.runc.v2' };

export interface RunRequest {
  readonly args: readonly string[];
  readonly stdin?: boolean;
  readonly terminal?: boolean;
  readonly memoryBytes?: number;
}

/** A container of a test, not yet started. */
export interface TestContainer {
  readonly id: string;
  readonly pid: number;
  readonly io: ProcessStdio;
  readonly exit: Promise<ExitStatus>;
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Waits for the exit and for all output. */
  finish(): Promise<ExitStatus>;
}

export class SupervisorHarness {
  readonly dir: string;
  readonly log: string[] = [];
  readonly #parent: string;
  /** The ids of the containers that were made here, or in a process that this one follows up. */
  readonly ids: string[] = [];
  readonly #ios: ProcessStdio[] = [];

  /** @param dir an existing harness's directory, to follow it up in another process. */
  constructor(dir = mkdtempSync(join(tmpdir(), 'supervisor-'))) {
    this.dir = dir;
    this.#parent = `/engined-${createHash('sha256').update(dir).digest('hex').slice(0, 12)}`;
    if (!existsSync(this.rootfs)) makeRootfs(this.rootfs);
  }

  get rootfs(): string {
    return join(this.dir, 'rootfs');
  }

  get socket(): string {
    return join(this.dir, 'exec/supervisor/supervisor.sock');
  }

  supervisor(options: Partial<SupervisorOptions> = {}): SupervisorProcess {
    return createSupervisor({
      namespace: NAMESPACE,
      execRoot: join(this.dir, 'exec'),
      dataRoot: join(this.dir, 'data'),
      logger: this.#logger(),
      criEnabled: false,
      debug: false,
      ...options,
    });
  }

  newId(): string {
    const id = randomBytes(32).toString('hex');
    this.ids.push(id);
    return id;
  }

  /** The directories that containerd keeps for tasks. */
  bundles(): string[] {
    return [join(this.dir, 'exec/supervisor/state'), join(this.dir, 'data/supervisor')]
      .map((dir) => join(dir, TASKS, NAMESPACE))
      .flatMap((dir) => (existsSync(dir) ? readdirSync(dir) : []));
  }

  /** Leaves what there is of a task when its runtime is killed after it has made the control groups. */
  leaveUnborn(): void {
    const id = this.newId();
    const bundle = join(this.dir, 'exec/supervisor/state', TASKS, NAMESPACE, id);
    mkdirSync(bundle, { recursive: true });
    writeFileSync(join(bundle, 'config.json'), JSON.stringify(this.spec(id, { args: ['true'] })));
    for (const hierarchy of readdirSync(CGROUPS).filter((name) => existsSync(join(CGROUPS, name, 'tasks'))))
      mkdirSync(join(CGROUPS, hierarchy, this.#parent, id), { recursive: true });
  }

  spec(id: string, request: RunRequest): Record<string, unknown> {
    return ociSpec({ ...request, rootfs: this.rootfs, cgroupsPath: `${this.#parent}/${id}` });
  }

  /** Creates a container; its output is collected and its exit awaited from the beginning. */
  async create({ tasks }: SupervisorProcess, request: RunRequest): Promise<TestContainer> {
    const id = this.newId();
    const { stdin = false, terminal = false } = request;
    const io = createStdio({ dir: join(this.dir, 'io', id), stdin, stdout: true, stderr: true, terminal });
    this.#ios.push(io);
    const [stdout, stderr] = [io.stdout, io.stderr].map((stream) => {
      const chunks: Buffer[] = [];
      stream?.on('data', (chunk: Buffer) => chunks.push(chunk));
      return () => Buffer.concat(chunks).toString();
    });
    const exit = nextEvent({ tasks }, (event) => event.type === 'exit' && event.id === id && event.execId === '');
    const { pid } = await tasks
      .create({ id, spec: this.spec(id, request), runtime: RUNC, stdio: io.paths })
      .catch(async (error: unknown) => {
        await io.close();
        throw error;
      });
    const exited = exit.then(exitOf);
    return {
      id,
      pid,
      io,
      exit: exited,
      stdout: stdout ?? (() => ''),
      stderr: stderr ?? (() => ''),
      async finish() {
        const status = await exited;
        await io.drained(5_000);
        return status;
      },
    };
  }

  async start(supervisor: SupervisorProcess, request: RunRequest): Promise<TestContainer> {
    const container = await this.create(supervisor, request);
    await supervisor.tasks.start(container.id);
    return container;
  }

  async remove({ tasks }: SupervisorProcess, { id, io }: Pick<TestContainer, 'id' | 'io'>): Promise<void> {
    await tasks.delete(id);
    await io.close();
  }

  /** Ends what a failed test left running. */
  async endAll(supervisor: SupervisorProcess): Promise<void> {
    const { tasks } = supervisor;
    for (const { id, status } of await tasks.list()) {
      if (status === 'paused') await tasks.resume(id);
      if (status !== 'stopped') {
        const exit = nextEvent(supervisor, (event) => event.type === 'exit' && event.id === id && event.execId === '');
        await tasks.kill(id, 9, { all: true });
        await exit;
      }
      await tasks.delete(id);
    }
    for (const io of this.#ios) await io.close();
  }

  /**
   * Removes all files; fails when a container left a cgroup, a FIFO, its shim or what this keeps. A runtime that was
   * killed in the middle of a creation leaves empty cgroups which it has not noted anywhere.
   */
  async cleanUp({ runtimeKilled = false } = {}): Promise<void> {
    const io = join(this.dir, 'io');
    const fifos = existsSync(io) ? readdirSync(io) : [];
    const realm = { socket: this.socket, namespace: NAMESPACE };
    const sockets = this.ids.flatMap((id) => shimSockets(realm, id)).filter((path) => existsSync(path));
    for (const socket of sockets) rmSync(socket);
    const shims = await findShims(realm);
    for (const { pid } of shims) process.kill(pid, 'SIGKILL');
    const bundles = this.bundles();
    const runtimeStates = join(this.dir, 'exec/runtime-runc', NAMESPACE);
    const states = existsSync(runtimeStates) ? readdirSync(runtimeStates) : [];
    const parents = readdirSync(CGROUPS)
      .map((controller) => join(CGROUPS, controller, this.#parent))
      .filter((path) => existsSync(path));
    const cgroups = parents.flatMap((parent) =>
      this.ids.map((id) => join(parent, id)).filter((path) => existsSync(path)),
    );
    for (const cgroup of [...cgroups, ...parents]) rmdirSync(cgroup);
    rmSync(this.dir, { recursive: true });
    assert.deepEqual(
      { fifos, sockets, shims, bundles, states, cgroups: runtimeKilled ? [] : cgroups },
      { fifos: [], sockets: [], shims: [], bundles: [], states: [], cgroups: [] },
    );
  }

  #logger(): Logger {
    const write =
      (level: string) =>
      (fields: object, message: string): void => {
        this.log.push(`${level} ${message} ${JSON.stringify(fields)}`);
      };
    const logger: Logger = {
      debug: write('debug'),
      info: write('info'),
      warn: write('warn'),
      error: write('error'),
      child: () => logger,
    };
    return logger;
  }
}

/** The next event that matches. */
export function nextEvent(
  { tasks }: Pick<SupervisorProcess, 'tasks'>,
  matches: (event: TaskEvent) => boolean,
): Promise<TaskEvent> {
  return new Promise((resolve) => {
    const unsubscribe = tasks.onEvent((event) => {
      if (!matches(event)) return;
      unsubscribe();
      resolve(event);
    });
  });
}

/** The next time that the supervisor enters the state. */
export function nextState(supervisor: SupervisorProcess, wanted: 'ready' | 'degraded'): Promise<void> {
  return new Promise((resolve) => {
    const unsubscribe = supervisor.onState((state) => {
      if (state !== wanted) return;
      unsubscribe();
      resolve();
    });
  });
}

export function exitOf(event: TaskEvent): ExitStatus {
  assert.equal(event.type, 'exit');
  return event.exit;
}

/** Resolves when the stream has delivered the text. */
export function untilText(read: () => string, stream: NodeJS.ReadableStream | undefined, text: string): Promise<void> {
  return new Promise((resolve) => {
    const check = (): void => {
      if (!read().includes(text)) return;
      stream?.off('data', check);
      resolve();
    };
    stream?.on('data', check);
    check();
  });
}
