/** A private daemon process: its own directories and socket, started and ended as often as a test wants. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync, watch, type FSWatcher } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { call } from './http.js';
import {
  leftovers,
  mountsBelow,
  networkState,
  processesOf,
  removeCgroups,
  sweep,
  type NetworkState,
} from './leftovers.js';
import { waitFor } from './wait.js';

const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 120_000;
/** A socket that has just appeared is asked so often. It is short, because benches time the start. */
const ASK_MS = 5;
/** Without a sign of the socket it is looked for so often. */
const LOOK_MS = 100;

/** How one kind of daemon is run. */
export interface EngineKind {
  readonly name: 'engined' | 'dockerd';
  /** Whether it takes its bridge, rules and control groups away when it ends. */
  readonly isTidy: boolean;
  /** It has no options besides those that every daemon of a test has, so files may share one. */
  readonly isDefault?: boolean;
  /** Part of the names of its links, rules and control groups. */
  readonly mark: string;
  /** Command line for a daemon with its files under `dir` that listens on `socketPath`. */
  command(dir: string, socketPath: string): readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Descriptors that the process has from 3 on, asked for at each start. */
  readonly passed?: () => readonly number[];
  /** Called when the first daemon in a directory answers. */
  readonly prepare?: (engine: Engine) => Promise<void>;
}

export class Engine {
  readonly name: EngineKind['name'];
  /** Everything of this daemon is below. */
  readonly dir: string;
  readonly socketPath: string;
  readonly #kind: EngineKind;
  readonly #before: NetworkState;
  readonly #logPath: string;
  #child: ChildProcess | undefined;

  private constructor(kind: EngineKind, dir: string) {
    this.name = kind.name;
    this.dir = dir;
    this.socketPath = join(dir, 'engine.sock');
    this.#kind = kind;
    this.#logPath = join(dir, 'daemon.log');
    this.#before = networkState();
  }

  /** Makes the directory and starts the daemon in it. */
  static async start(kind: EngineKind): Promise<Engine> {
    const engine = new Engine(kind, await mkdtemp(join(tmpdir(), `${kind.name}-`)));
    try {
      await engine.start();
      await kind.prepare?.(engine);
    } catch (error) {
      await engine.discard();
      throw error;
    }
    return engine;
  }

  /** Part of the names of its links, rules and control groups. */
  get mark(): string {
    return this.#kind.mark;
  }

  /** For DOCKER_HOST. */
  get host(): string {
    return `unix://${this.socketPath}`;
  }

  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error(`${this.name} does not run`);
    return this.#child.pid;
  }

  /** All output of all runs so far. */
  get log(): string {
    return existsSync(this.#logPath) ? readFileSync(this.#logPath, 'utf8') : '';
  }

  /** The port of its first listener on loopback. It is told in the log, after the socket may answer already. */
  async tcpPort(): Promise<number> {
    return Number(await waitFor('the port to be told', () => /tcp:\/\/127\.0\.0\.1:(\d+)/.exec(this.log)?.[1]));
  }

  /** Resolves when the daemon answers `_ping`; also after an earlier `stop`, on the same data. */
  async start(limitMs = START_TIMEOUT_MS): Promise<void> {
    const [program, ...args] = this.#kind.command(this.dir, this.socketPath);
    if (program === undefined) throw new Error('the command is empty');
    const log = openSync(this.#logPath, 'a');
    // The daemon must not outlive a test process that was killed.
    const child = spawn('setpriv', ['--pdeathsig', 'TERM', program, ...args], {
      stdio: ['ignore', log, log, ...(this.#kind.passed?.() ?? [])],
      env: { ...process.env, ...this.#kind.env },
    });
    closeSync(log);
    this.#child = child;
    const watcher = watch(this.dir);
    try {
      await once(child, 'spawn');
      await this.#answer(child, watcher, limitMs);
    } finally {
      watcher.close();
    }
  }

  /**
   * Resolves when the daemon answers. The watcher tells of its socket: looking all the time would take some of the
   * processor time that the start needs.
   */
  async #answer(child: ChildProcess, watcher: FSWatcher, limitMs: number): Promise<void> {
    const socket = basename(this.socketPath);
    const deadline = Date.now() + limitMs;
    let hasAppeared = false;
    for (;;) {
      const tail = (): string => this.log.slice(-4000);
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(`${this.name} ended at once (${child.exitCode ?? child.signalCode}): ${tail()}`);
      const reply =
        existsSync(this.socketPath) && (await call(this.socketPath, 'GET', '/_ping').catch(() => undefined));
      if (reply && reply.status === 200) return;
      if (Date.now() > deadline) throw new Error(`${this.name} does not answer; its log ends: ${tail()}`);
      await new Promise<void>((resolve) => {
        const onChange = (_: string, name: string | Buffer | null): void => {
          if (name !== socket) return;
          hasAppeared = true;
          done();
        };
        const done = (): void => {
          clearTimeout(timer);
          watcher.off('change', onChange);
          child.off('exit', done);
          resolve();
        };
        const timer = setTimeout(done, hasAppeared ? ASK_MS : LOOK_MS);
        watcher.on('change', onChange);
        child.on('exit', done);
      });
    }
  }

  /** Resolves with the exit code, or the signal's name, when the process is gone. */
  async stop(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL' = 'SIGTERM'): Promise<number | string | undefined> {
    const child = this.#child;
    if (child === undefined) return undefined;
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit');
      child.kill(signal);
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      await ended;
      clearTimeout(timer);
    }
    this.#child = undefined;
    return child.exitCode ?? child.signalCode ?? undefined;
  }

  /** Returns everything that this daemon would leave on the machine if it ended now. */
  leftovers(): string[] {
    return leftovers({ dir: this.dir, mark: this.#kind.mark, before: this.#before });
  }

  /** Orderly end. Throws when a tidy daemon does not end by itself or leaves anything but its data behind. */
  async close(): Promise<void> {
    const status = await this.stop();
    if (!this.#kind.isTidy) return this.discard();
    const log = this.log;
    let left: string[] = [];
    // Shims and kernel objects may go a moment after the daemon.
    await waitFor('nothing to be left', () => (left = this.leftovers()).length === 0, 20_000).catch(() => undefined);
    if (existsSync(this.socketPath)) left.push(`socket ${this.socketPath}`);
    await this.discard();
    if (status !== undefined && status !== 0) left.unshift(`exit status ${status}`);
    if (left.length > 0)
      throw new Error(`${this.name} left behind:\n${left.join('\n')}\nits log ends:\n${log.slice(-3000)}`);
  }

  /** Ends everything by force and deletes the files, whatever state they are in. */
  async discard(): Promise<void> {
    await this.stop('SIGKILL');
    await waitFor('the processes to be gone', () => {
      sweep(this.dir);
      return processesOf(this.dir).length === 0 && mountsBelow(this.dir).length === 0;
    });
    if (this.#kind.isTidy) await waitFor('the control groups to be empty', () => removeCgroups(this.#kind.mark));
    await removeTree(this.dir);
  }
}

/** A program is faster than this process, but cannot remove everything that a storage driver makes. */
async function removeTree(path: string): Promise<void> {
  try {
    execFileSync('rm', ['-rf', path], { stdio: 'ignore' });
  } catch {
    const { removeTrees } = await import('../../src/storage/tasks/remove-trees.js');
    removeTrees({ paths: [path] });
  }
}
