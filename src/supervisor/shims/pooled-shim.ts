/**
 * A shim that the daemon starts itself, so that it can outlive its first task. It runs in a directory of its own, with
 * the files in which a shim expects the description of a task and its log.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { internal } from '../../errors/engine-error.js';
import { runProgram } from '../../sys/process/spawn.js';
import { endShims, POOLED, removeShimSockets, type Realm } from '../orphans.js';
import { EmptyResponseSchema } from '../proto/gen/shim_pb.js';
import { shimAddress, type ShimAddress } from './shim-address.js';
import { ShimConnection } from './shim-connection.js';

const PROGRAM = 'containerd-shim-runc-v2';
/** A task is served by a shim of others only in this version of the protocol. */
const SERVICE = 'containerd.task.v3.Task';
/** A shim that nobody needs ends within milliseconds, but on a busy machine it may take its time. */
const END_MS = 5_000;

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
      const { stdout, stderr, exitCode } = await runProgram('env', startArguments(realm, dir, name, isDebug));
      if (exitCode !== 0) throw internal(`the shim does not start: ${stderr.trim()}`);
      const file = join(dir, 'bootstrap.json');
      await writeFile(`${file}.new`, stdout);
      await rename(`${file}.new`, file);
      const address = await shimAddress(dir);
      if (address?.service !== SERVICE) throw internal(`the shim cannot serve tasks of others: ${stdout}`);
      return new PooledShim(place, name, address, ended);
    } catch (error) {
      await killShim(place, name);
      throw error;
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
 * The arguments of `env` that start a shim as containerd does it (its README about runtime v2). It may use as many
 * processors for that as with containerd, and readiness is the daemon's to tell.
 */
function startArguments({ socket, namespace }: Realm, dir: string, name: string, isDebug: boolean): string[] {
  const variables = {
    TTRPC_ADDRESS: `${socket}.ttrpc`,
    GRPC_ADDRESS: socket,
    NAMESPACE: namespace,
    MAX_SHIM_VERSION: '2',
    GOMAXPROCS: '2',
  };
  const assignments = Object.entries(variables).map(([variable, value]) => `${variable}=${value}`);
  const place = ['-namespace', namespace, '-address', socket, '-publish-binary', 'containerd', '-id', name];
  return ['-C', dir, '-u', 'NOTIFY_SOCKET', ...assignments, PROGRAM, ...place, ...(isDebug ? ['-debug'] : []), 'start'];
}
