/**
 * Shims that serve one task after another. To start a shim and to end it takes a quarter of the processor time of a
 * short container. Each of these serves one task at a time, so that its death takes no other task along. Since 2.1,
 * containerd takes the address of a shim with a task, as that of a sandbox. It does not watch such a shim: we do.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isEngineError, messageOf } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import type { CreateTask } from '../../ports/supervisor.js';
import { isAtLeast, parseVersion, type Version } from '../../text/version.js';
import type { GrpcConnection, UnaryClient } from '../grpc-connection.js';
import { endShims, findShims, POOLED } from '../orphans.js';
import { forgetShims, PooledShim, pooledShims, shimLogIn, type ShimPlace } from './pooled-shim.js';
import { Store } from '../proto/gen/sandbox_store_pb.js';
import { RUNC_SHIM } from '../runtime-options.js';
import { shimAddress } from './shim-address.js';
import type { ShimConnection } from './shim-connection.js';
import { ShimLog } from './shim-log.js';

const TAKES_ADDRESSES_SINCE: Version = [2, 1];
/** A burst of containers is followed by the next one soon, or not for a long time. */
const IDLE_MS = 30_000;
/** Each takes 10 MiB, most of which they share. */
const MOST_IDLE = 16;
/** An idle shim that says nothing for so long hangs. It serves nobody, so no harm is done where it was only slow. */
const ANSWER_MS = 2_000;
/** Then it is replaced, so that little stays of a leak, should it have one. */
const MOST_USES = 100;
/** containerd wants a record of the sandbox that a task belongs to. All of ours have this one. */
const SANDBOX = 'shared-shims';

export interface ShimPoolOptions extends ShimPlace {
  readonly connection: GrpcConnection;
  readonly logger: Logger;
  /** Whether shims log at debug level. */
  readonly isDebug: () => boolean;
  /** Called when the shim of a task has ended before the task was deleted. */
  readonly lost: (id: string) => void;
}

/** The part of a task by which containerd finds its shim. */
export interface TakenShim {
  readonly address: string;
  readonly sandbox: string;
}

interface Idle {
  readonly shim: PooledShim;
  readonly timer: NodeJS.Timeout;
}

export class ShimPool {
  readonly #options: ShimPoolOptions;
  readonly #store: UnaryClient<typeof Store>;
  readonly #idle: Idle[] = [];
  /** Shims by the tasks that they serve. */
  readonly #busy = new Map<string, PooledShim>();
  readonly #lost = new Set<string>();
  readonly #endings = new Set<Promise<void>>();
  readonly #log: ShimLog;
  #isUsable = false;
  #sandbox: Promise<void> | undefined;

  constructor(options: ShimPoolOptions) {
    this.#options = options;
    this.#store = options.connection.unary(Store);
    this.#log = new ShimLog(shimLogIn(options.dir), options.logger);
  }

  /** Notes the version of the containerd that tasks are made by from now on. */
  use(version: string): void {
    this.#isUsable = isAtLeast(parseVersion(version.replace(/^v/, '')), TAKES_ADDRESSES_SINCE);
    this.#sandbox = undefined;
  }

  /**
   * Has a shim serve a task that is about to be made. Returns undefined when containerd has to start one for it, as the
   * runtime wants that, or containerd is too old.
   */
  async take({ id, runtime, spec }: CreateTask): Promise<TakenShim | undefined> {
    if (!this.#isUsable || runtime.type !== RUNC_SHIM || runtime.takesAnyShim !== true) return undefined;
    // The runtime calls some hooks where the shim is. One that serves a task of this ID already is not ours to forget.
    if (spec['hooks'] !== undefined || this.#busy.has(id)) return undefined;
    try {
      this.#sandbox ??= this.#makeSandbox();
      await this.#sandbox;
      const shim = (await this.#takeIdle()) ?? (await this.#start());
      shim.uses += 1;
      this.#busy.set(id, shim);
      return { address: shim.address, sandbox: SANDBOX };
    } catch (error) {
      this.#isUsable = false;
      this.#options.logger.warn({ reason: messageOf(error) }, 'each task has a shim of its own from now on');
      return undefined;
    }
  }

  /** Takes the shim of a task back which was deleted in good order, and keeps it for the next one. */
  giveBack(id: string): void {
    this.#lost.delete(id);
    const shim = this.#busy.get(id);
    if (!this.#busy.delete(id) || shim === undefined) return;
    if (this.#idle.length >= MOST_IDLE || shim.uses >= MOST_USES) return void this.#ending(shim.end());
    const timer = setTimeout(() => {
      this.#forgetIdle(shim);
      void this.#ending(shim.end());
    }, IDLE_MS);
    timer.unref();
    this.#idle.push({ shim, timer });
  }

  /**
   * Ends the shim of a task with which something went wrong. Returns false when there is none, or none of ours.
   * @param isBroken says that nothing can be expected of the shim any more.
   */
  async discard(id: string, isBroken: boolean): Promise<boolean> {
    this.#lost.delete(id);
    const shim = this.#busy.get(id);
    if (!this.#busy.delete(id) || shim === undefined) return false;
    await this.#ending(isBroken ? shim.kill() : shim.end());
    return true;
  }

  /** Returns the connection to the shim of a task; undefined when it is none of the pool's. */
  connectionOf(id: string): ShimConnection | undefined {
    return this.#busy.get(id)?.connection;
  }

  /** Tells that the shim of a task has ended, which containerd does not notice. */
  hasLost(id: string): boolean {
    return this.#lost.has(id);
  }

  /**
   * Takes over what an earlier daemon has left: shims that serve tasks, while others are ended. To be called before
   * tasks are made. Returns the tasks whose shims have ended meanwhile.
   */
  async adopt(): Promise<string[]> {
    const names = await pooledShims(this.#options);
    if (names.length === 0) return [];
    this.#log.open();
    const tasks = await this.#tasksByAddress();
    const living = new Set((await findShims(this.#options.realm)).map(({ id }) => id));
    const dead: string[] = [];
    const serving = new Set<string>();
    await Promise.all(
      names.map(async (name) => {
        const path = (await shimAddress(join(this.#options.dir, name)))?.path;
        const id = path === undefined ? undefined : tasks.get(path);
        if (id === undefined) return;
        try {
          this.#busy.set(id, await PooledShim.found(this.#options, name, this.#ended));
          serving.add(name);
        } catch (error) {
          if (living.has(name)) {
            // Its socket may be where only its containerd finds it.
            serving.add(name);
            this.#options.logger.warn(
              { id, shim: name, reason: messageOf(error) },
              'nobody watches the shim of a task',
            );
          } else dead.push(id);
        }
      }),
    );
    await endShims(this.#options.realm, (name) => name.startsWith(POOLED) && !serving.has(name));
    await forgetShims(
      this.#options,
      names.filter((name) => !serving.has(name)),
    );
    return dead;
  }

  /** Ends the shims that serve no task; others are left to the next daemon. */
  async close(): Promise<void> {
    this.#isUsable = false;
    for (const { shim, timer } of this.#idle.splice(0)) {
      clearTimeout(timer);
      void this.#ending(shim.end());
    }
    for (const shim of this.#busy.values()) shim.leave();
    await Promise.all(this.#endings);
    this.#log.close();
  }

  readonly #ended = (shim: PooledShim): void => {
    this.#forgetIdle(shim);
    void this.#ending(forgetShims(this.#options, [shim.name]));
    for (const [id, serving] of this.#busy) {
      if (serving !== shim) continue;
      this.#busy.delete(id);
      this.#lost.add(id);
      this.#options.lost(id);
    }
  };

  #start(): Promise<PooledShim> {
    this.#log.open();
    return PooledShim.start(this.#options, this.#options.isDebug(), this.#ended);
  }

  /** Takes a shim that serves nobody, and answers: containerd would wait for ever for one that hangs. */
  async #takeIdle(): Promise<PooledShim | undefined> {
    const idle = this.#idle.pop();
    if (idle === undefined) return undefined;
    const { shim, timer } = idle;
    clearTimeout(timer);
    try {
      await shim.answers(ANSWER_MS);
      return shim;
    } catch (error) {
      this.#options.logger.warn({ shim: shim.name, reason: messageOf(error) }, 'a shim that serves nobody is ended');
      void this.#ending(shim.kill());
      return undefined;
    }
  }

  #forgetIdle(shim: PooledShim): void {
    const at = this.#idle.findIndex((idle) => idle.shim === shim);
    const [idle] = at < 0 ? [] : this.#idle.splice(at, 1);
    clearTimeout(idle?.timer);
  }

  async #makeSandbox(): Promise<void> {
    try {
      await this.#store.create({ sandbox: { sandboxId: SANDBOX, runtime: { name: RUNC_SHIM } } });
    } catch (error) {
      if (!isEngineError(error, 'conflict')) throw error;
    }
  }

  /** Returns the tasks that containerd has files of, by the sockets of their shims. */
  async #tasksByAddress(): Promise<Map<string, string>> {
    const [dir = ''] = this.#options.realm.taskDirs ?? [];
    const ids = await readdir(dir).catch(() => []);
    const entries = await Promise.all(
      ids.map(async (id) => [(await shimAddress(join(dir, id)))?.path ?? '', id] as const),
    );
    return new Map(entries);
  }

  async #ending(ending: Promise<void>): Promise<void> {
    const settled = ending.catch((error: unknown) =>
      this.#options.logger.warn({ err: error }, 'what is left of a shim stays'),
    );
    this.#endings.add(settled);
    await settled;
    this.#endings.delete(settled);
  }
}
