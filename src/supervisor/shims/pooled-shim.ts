/**
 * A shim that the daemon starts itself, so that it can outlive its first task. It runs in a directory of its own, with
 * the files in which a shim expects the description of a task and its log.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { internal } from '../../errors/engine-error.js';
import { listenOnUnix } from '../../sys/net/listen-socket.js';
import { openPidfd } from '../../sys/process/pidfd.js';
import { onEnd, spawnProgram, takeStatus } from '../../sys/process/spawn.js';
import { awake } from '../../text/awake.js';
import { endShims, POOLED, removeShimSockets, shimSockets, type Realm } from '../orphans.js';
import { EmptyResponseSchema, StateResponseSchema } from '../proto/gen/shim_pb.js';
import { unlessNotFound } from '../task-lookup.js';
import { shimAddress, type ShimAddress } from './shim-address.js';
import { ShimConnection } from './shim-connection.js';

const PROGRAM = 'containerd-shim-runc-v2';
/** A task is served by a shim of others only in this version of the protocol. */
const VERSION = 3;
const SERVICE = `containerd.task.v${VERSION}.Task`;
const HIGHEST_OOM_SCORE = 1000;
/** The file for what it says when it cannot start, and when it breaks down; its other words are in its log. */
const ERRORS = 'errors';
const SAID_LENGTH = 1000;
/** A shim that nobody needs ends within milliseconds, but on a busy machine it may take its time. */
const END_MS = 5_000;
/** A new shim answers within a tenth of a second; a slow machine has to read its program first. */
const START_MS = 60_000;

export interface ShimPlace {
  readonly realm: Realm;
  /** Directory of the shims of the realm. */
  readonly dir: string;
}

/** The log of all shims in a directory. */
export function shimLogIn(dir: string): string {
  return join(dir, 'log');
}

/** Returns the names of the shims that this or an earlier daemon has started and not seen off. */
export async function pooledShims({ dir }: ShimPlace): Promise<string[]> {
  return (await readdir(dir).catch(() => [])).filter((name) => name.startsWith(POOLED));
}

/** Removes the files of shims that have ended. */
export async function forgetShims({ realm, dir }: ShimPlace, names: readonly string[]): Promise<void> {
  await Promise.all(
    names.map(async (name) => {
      await removeShimSockets(realm, name);
      await rm(join(dir, name), { recursive: true, force: true });
    }),
  );
}

export class PooledShim {
  readonly name: string;
  /** Tasks that it has served. */
  uses = 0;
  readonly #place: ShimPlace;
  readonly #address: ShimAddress;
  readonly #connection: ShimConnection;
  readonly #closed: Promise<void>;
  #isEnding = false;

  private constructor(place: ShimPlace, name: string, address: ShimAddress, ended: (shim: PooledShim) => void) {
    this.name = name;
    this.#place = place;
    this.#address = address;
    this.#connection = new ShimConnection(address.path, address.service);
    this.#closed = this.#connection.closed.then(() => {
      if (!this.#isEnding) ended(this);
    });
  }

  /**
   * Starts one.
   * @param ended is called when it has ended by itself, or somebody has killed it.
   * @throws EngineError when it does not start, or is too old to serve tasks of others.
   */
  static async start(place: ShimPlace, isDebug: boolean, ended: (shim: PooledShim) => void): Promise<PooledShim> {
    const { realm } = place;
    const name = `${POOLED}${randomBytes(8).toString('hex')}`;
    const dir = join(place.dir, name);
    await mkdir(dir, { recursive: true, mode: 0o700 });
    try {
      // It looks for annotations there, and there are none.
      await writeFile(join(dir, 'config.json'), '{}');
      await symlink(shimLogIn(place.dir), join(dir, 'log'));
      const [path = '', debugPath = ''] = shimSockets(realm, name);
      await mkdir(dirname(path), { recursive: true, mode: 0o711 });
      await startServer(dir, isDebug ? [path, debugPath] : [path], serverArguments(realm, dir, name, isDebug));
      const file = join(dir, 'bootstrap.json');
      const address = { version: VERSION, address: `unix://${path}`, protocol: 'ttrpc' };
      await writeFile(`${file}.new`, JSON.stringify(address));
      await rename(`${file}.new`, file);
      const shim = new PooledShim(place, name, { path, service: SERVICE }, ended);
      await shim.answers(START_MS);
      return shim;
    } catch (error) {
      const said = await readFile(join(dir, ERRORS), 'utf8').catch(() => '');
      await killShim(place, name);
      throw said === ''
        ? error
        : internal(`the shim does not start: ${said.trim().slice(0, SAID_LENGTH)}`, { cause: error });
    }
  }

  /** Connects to one that an earlier daemon has started. @throws EngineError, or the error of connect(2). */
  static async found(place: ShimPlace, name: string, ended: (shim: PooledShim) => void): Promise<PooledShim> {
    const address = await shimAddress(join(place.dir, name));
    if (address === undefined) throw internal('the shim has left no address');
    const shim = new PooledShim(place, name, address, ended);
    try {
      await shim.#connection.opened;
    } catch (error) {
      shim.leave();
      throw error;
    }
    return shim;
  }

  /** The address as containerd wants it with a task. */
  get address(): string {
    return `ttrpc+unix://${this.#address.path}`;
  }

  /** For calls about the task that it serves. */
  get connection(): ShimConnection {
    return this.#connection;
  }

  /**
   * Waits until it serves, for `limitMs` at most. @throws EngineError when it has ended, hangs, or is too old to serve
   * tasks of others; then it can only be killed.
   */
  async answers(limitMs: number): Promise<void> {
    const over = new AbortController();
    const asked = unlessNotFound(this.#connection.ask('State', StateResponseSchema, { id: this.name, execId: '' }));
    const late = awake(limitMs, over.signal).then(() => false);
    try {
      if (!(await Promise.race([asked.then(() => true), late]))) throw internal('the shim does not answer');
    } catch (error) {
      this.leave();
      throw error;
    } finally {
      over.abort();
    }
  }

  /** Leaves it to the next daemon. */
  leave(): void {
    this.#isEnding = true;
    this.#connection.close();
  }

  /** Ends it, which has no task any more. One that does not answer is killed. */
  async end(): Promise<void> {
    this.#isEnding = true;
    const asked = this.#connection.ask('Shutdown', EmptyResponseSchema, { id: this.name, execId: '' });
    asked.catch(() => undefined);
    const timer = new AbortController();
    const timeUp = delay(END_MS, false, { signal: timer.signal }).catch(() => false);
    const hasEnded = await Promise.race([this.#closed.then(() => true), timeUp]);
    timer.abort();
    if (hasEnded) await forgetShims(this.#place, [this.name]);
    else await this.kill();
  }

  /** Kills it, whatever it does. */
  async kill(): Promise<void> {
    this.leave();
    await killShim(this.#place, this.name);
  }
}

async function killShim(place: ShimPlace, name: string): Promise<void> {
  await endShims(place.realm, (other) => other === name);
  await forgetShims(place, [name]);
}

/**
 * Starts the server of a shim as the shim's own `start` program would, which sets GOMAXPROCS whatever it is given, and
 * takes 9 ms. Its sockets listen already, so nobody waits for it to connect. Where memory is short, the kernel ends it
 * before the daemon.
 */
async function startServer(dir: string, sockets: readonly string[], args: readonly string[]): Promise<void> {
  const fds = [openSync('/dev/null', constants.O_RDWR)];
  try {
    const [none = -1] = fds;
    const errors = openSync(join(dir, ERRORS), 'ax', 0o600);
    fds.push(errors);
    const listening = sockets.map((path) => {
      const fd = listenOnUnix(path, 0o600);
      fds.push(fd);
      return fd;
    });
    const pid = await spawnProgram('env', args, { stdio: [none, none, errors, ...listening], hasOwnSession: true });
    onEnd(openPidfd(pid), () => void takeStatus(pid)).unref();
    const score = Number(await readFile('/proc/self/oom_score_adj', 'latin1'));
    await writeFile(`/proc/${pid}/oom_score_adj`, String(Math.min(score + 1, HIGHEST_OOM_SCORE)));
  } finally {
    for (const fd of fds) closeSync(fd);
  }
}

/**
 * The arguments of `env` that start the server of a shim. The runtime has its environment, and lives so shortly that to
 * start threads for more than one processor costs a sixth of its time.
 */
function serverArguments({ socket, namespace }: Realm, dir: string, name: string, isDebug: boolean): string[] {
  const variables = {
    TTRPC_ADDRESS: `${socket}.ttrpc`,
    GRPC_ADDRESS: socket,
    NAMESPACE: namespace,
    GOMAXPROCS: '1',
  };
  const assignments = Object.entries(variables).map(([variable, value]) => `${variable}=${value}`);
  const place = ['-namespace', namespace, '-address', socket, '-publish-binary', 'containerd', '-id', name];
  return ['-C', dir, '-u', 'NOTIFY_SOCKET', ...assignments, PROGRAM, ...place, ...(isDebug ? ['-debug'] : [])];
}
