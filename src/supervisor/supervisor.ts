/**
 * The container supervisor: a containerd of our own that is watched and restarted, or the external one that the
 * configuration names. Its tasks are `ready` while the stream of their events is in force and nothing was missed.
 */
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError, messageOf, unavailable } from '../errors/engine-error.js';
import type { Content } from '../ports/content.js';
import type { Logger } from '../ports/logger.js';
import type { Snapshots } from '../ports/snapshots.js';
import type { SupervisorProcess, TaskService } from '../ports/supervisor.js';
import { containerdConfig, containerdPaths, taskDir, taskDirs, type ContainerdPaths } from './containerd-config.js';
import {
  adoptContainerd,
  forgetContainerd,
  launchContainerd,
  type Containerd,
  type ContainerdOptions,
} from './containerd-process.js';
import { deferred } from './deferred.js';
import { openEventStream } from './event-stream.js';
import { GrpcConnection } from './grpc-connection.js';
import { HeardExits } from './exits/heard-exits.js';
import { KeptInits } from './exits/kept-inits.js';
import { findTraces, removeOrphans, type Realm } from './orphans.js';
import { Namespaces } from './proto/gen/namespaces_pb.js';
import { Version } from './proto/gen/version_pb.js';
import { ShimWitness } from './shims/shim-witness.js';
import { BlobFiles } from './blob-files.js';
import { ContainerdContent } from './content.js';
import { ContainerdSnapshots } from './snapshots.js';
import { ContainerdTasks } from './task-service.js';
import { findUnborn, removeGroups, type UnbornTask } from './unborn-tasks.js';

// A process that hangs must not hang the start. As long as it makes progress, it is asked again after these times.
const ADOPT_TIMEOUT_MS = 2_000;
const NAMESPACE_TIMEOUT_MS = 10_000;
const RECONNECT_DELAY_MS = 50;
const RESTART_DELAY_MS = { first: 50, most: 5_000 };
// A process that lived this long did not fail at starting: its restarts begin with the shortest delay again.
const STABLE_MS = 10_000;

export interface SupervisorOptions {
  /** Socket of an external containerd. Default: a child of our own. */
  readonly address?: string;
  /** Runs the containerd whose other namespace this is: it is neither started nor ended here. */
  readonly keeper?: Pick<SupervisorProcess, 'pid' | 'onState'>;
  /** containerd namespace that holds our containers. */
  readonly namespace: string;
  readonly execRoot: string;
  readonly dataRoot: string;
  readonly logger: Logger;
  /** Whether the child serves Kubernetes' container runtime interface, too. */
  readonly criEnabled: boolean;
  /** Snapshotter that the child has besides those which it needs itself. Default: none. */
  readonly snapshotter?: string | undefined;
  /** Whether the child logs at debug level. */
  readonly debug: boolean;
}

type State = 'ready' | 'degraded';

/**
 * Makes the supervisor; nothing runs before `start`. @throws EngineError invalid when exec-root is too long for a
 * socket path.
 */
export function createSupervisor(options: SupervisorOptions): SupervisorProcess {
  return new Supervisor(options);
}

class Supervisor implements SupervisorProcess {
  readonly tasks: TaskService;
  readonly content: Content;
  readonly #options: SupervisorOptions;
  readonly #logger: Logger;
  readonly #paths: ContainerdPaths;
  readonly #realm: Realm;
  readonly #connection: GrpcConnection;
  readonly #heard: HeardExits;
  readonly #kept: KeptInits | undefined;
  readonly #tasks: ContainerdTasks;
  readonly #listeners = new Set<(state: State, reason?: string) => void>();
  #child: Containerd | undefined;
  /** A process that may be taken over, while it is asked. */
  #candidate: Containerd | undefined;
  /** Listens to shims until containerd is back. */
  #witness: ShimWitness | undefined;
  #keeper: Promise<void> | undefined;
  #closeStream: (() => void) | undefined;
  #state: State = 'degraded';
  readonly #stopped = new AbortController();

  constructor(options: SupervisorOptions) {
    const { address, execRoot, dataRoot, namespace } = options;
    this.#options = options;
    this.#logger = options.logger.child({ component: 'supervisor' });
    this.#paths = containerdPaths(execRoot, dataRoot);
    const heardExits = options.keeper === undefined ? this.#paths.heardExits : `${this.#paths.heardExits}-${namespace}`;
    const { runcRoot, socket } = this.#paths;
    this.#realm =
      address === undefined
        ? { socket, namespace, runcRoot, taskDirs: taskDirs(this.#paths, namespace) }
        : { socket: address, namespace, runcRoot };
    this.#connection = new GrpcConnection(this.#realm.socket, namespace, () => this.#isComing);
    this.#heard = new HeardExits(heardExits);
    // The processes of an external containerd may have other numbers here.
    if (address === undefined && options.keeper === undefined)
      this.#kept = new KeptInits({
        dir: this.#paths.keptInits,
        bundles: taskDir(this.#paths.state, namespace),
        logger: this.#logger,
      });
    this.#tasks = new ContainerdTasks({
      connection: this.#connection,
      logger: this.#logger,
      realm: this.#realm,
      heard: this.#heard,
      kept: this.#kept,
      // The paths of an external containerd and of its shims are unknown.
      shims: this.#isOurs ? { dir: join(this.#paths.shims, namespace), isDebug: () => options.debug } : undefined,
    });
    this.tasks = this.#tasks;
    // An external one may keep its files from us, or its namespaces from each other.
    this.content = new ContainerdContent(this.#connection, this.#isOurs ? new BlobFiles(this.#paths.root) : undefined);
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  snapshots(snapshotter: string): Snapshots {
    return new ContainerdSnapshots(this.#connection, snapshotter);
  }

  onState(listener: (state: State, reason?: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async start(): Promise<void> {
    try {
      if (this.#isOurs) {
        const damaged = await this.#heard.load();
        if (damaged.length > 0) this.#logger.warn({ damaged }, 'exits that were heard before cannot be read');
        await this.#kept?.load();
      }
      const unborn = this.#isOurs ? await findUnborn(taskDir(this.#paths.state, this.#options.namespace)) : [];
      if (this.#isOurs && this.#options.keeper === undefined) {
        this.#child = await this.#adoptOrLaunch();
        this.#keeper = this.#keepUp(this.#child);
      }
      const stream = await this.#insist(() => this.#subscribe());
      if (this.#isOurs) await this.#tasks.adoptShims();
      if (this.#isOurs) await this.#endOrphans(unborn);
      void this.#follow(stream);
    } catch (error) {
      // The containerd of another supervisor may be back when this is tried again.
      if (this.#options.keeper !== undefined) throw error;
      const tail = this.#child?.tail();
      await this.stop();
      throw tail ? unavailable(`${messageOf(error)}; containerd said:\n${tail}`, { cause: error }) : error;
    }
  }

  async stop({ leavesTasks = false } = {}): Promise<void> {
    this.#stopped.abort();
    this.#closeStream?.();
    this.#witness?.close();
    await this.#tasks.containers.settled();
    this.#connection.close();
    const child = this.#child;
    // One that is just being started again is not needed by anybody yet.
    if (leavesTasks && child !== undefined) child.leave();
    else {
      await child?.terminate();
      await this.#keeper;
    }
    await this.#tasks.close();
  }

  /** True for a containerd that the daemon runs, whichever of its supervisors does. */
  get #isOurs(): boolean {
    return this.#options.address === undefined;
  }

  /** Tells whether a process of ours can still be expected to answer. */
  get #isComing(): boolean {
    if (this.#options.keeper !== undefined) return this.#options.keeper.pid !== undefined;
    return (this.#child ?? this.#candidate)?.isMoving ?? false;
  }

  /**
   * Makes a call that may safely be made twice. It is made again after each timeout, as long as an answer can be
   * expected.
   */
  async #insist<T>(call: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await call();
      } catch (error) {
        if (!isEngineError(error, 'deadline') || this.#stopped.signal.aborted || !this.#isComing) throw error;
      }
    }
  }

  async #adoptOrLaunch(): Promise<Containerd> {
    const options = this.#containerdOptions();
    const adopted = await adoptContainerd(options, async (candidate) => {
      this.#candidate = candidate;
      try {
        await this.#connection.ready(ADOPT_TIMEOUT_MS);
        await this.#insist(() => this.#connection.unary(Version).version({}, { timeoutMs: ADOPT_TIMEOUT_MS }));
        return true;
      } catch {
        return false; // Whatever the reason, such a process cannot be used.
      } finally {
        this.#candidate = undefined;
      }
    });
    if (adopted) this.#logger.info({ pid: adopted.pid }, 'took over the running containerd');
    return adopted ?? this.#launch();
  }

  /** Starts containerd, which may forget events that happened in its absence. */
  async #launch(): Promise<Containerd> {
    this.#witness?.close();
    const dir = taskDir(this.#paths.state, this.#options.namespace);
    this.#witness = await ShimWitness.listen(dir, this.#heard, this.#tasks.awaited());
    return launchContainerd(this.#containerdOptions());
  }

  /**
   * Removes orphans. The daemon before this one was killed, perhaps together with containerd: what they had begun may
   * be half done.
   * @param unborn is what was half done when this began.
   */
  async #endOrphans(unborn: readonly UnbornTask[]): Promise<void> {
    const known = new Set((await this.tasks.list(() => true)).map(({ id }) => id));
    const isOrphan = (id: string): boolean => !known.has(id);
    try {
      // containerd may know the shim of a task that it does not list, and then clears up better than anybody else.
      const traces = (await findTraces(this.#realm)).filter(isOrphan);
      for (const id of traces)
        await this.#tasks.clear(id).catch((error: unknown) => this.#logger.debug({ id, err: error }, 'not deleted'));
      const removed = await removeOrphans(this.#realm, isOrphan);
      // Those that this has killed are listed with their codes.
      await Promise.all([...traces, ...removed].map(async (id) => this.#kept?.exitCodeSoon(id)));
      if (removed.length > 0) this.#logger.warn({ tasks: removed }, 'removed what was left of tasks that are gone');
      await this.#tasks.containers.removeOthers(known);
      await removeGroups(unborn.filter(({ id }) => isOrphan(id)));
    } catch (error) {
      this.#logger.error({ err: error }, 'what is left of tasks that are gone is not removed');
    }
  }

  #containerdOptions(): ContainerdOptions {
    return { paths: this.#paths, config: containerdConfig(this.#paths, this.#options), logger: this.#logger };
  }

  /** Restarts the child whenever it dies, until `stop`; then sees it off. */
  async #keepUp(first: Containerd): Promise<void> {
    let child: Containerd | undefined = first;
    let delayMs = RESTART_DELAY_MS.first;
    while (child !== undefined) {
      const bornAt = performance.now();
      const end = await child.died;
      this.#child = undefined;
      if (this.#stopped.signal.aborted) break;
      this.#logger.error({ pid: child.pid }, `containerd ${end}; starting it again`);
      if (performance.now() - bornAt > STABLE_MS) delayMs = RESTART_DELAY_MS.first;
      do {
        await this.#pause(delayMs);
        delayMs = Math.min(delayMs * 2, RESTART_DELAY_MS.most);
        child = await this.#relaunch();
      } while (child === undefined && !this.#stopped.signal.aborted);
    }
    forgetContainerd(this.#paths);
  }

  async #relaunch(): Promise<Containerd | undefined> {
    if (this.#stopped.signal.aborted) return undefined;
    try {
      this.#child = await this.#launch();
    } catch (error) {
      this.#logger.error({ err: error }, 'cannot start containerd again');
      return undefined;
    }
    if (this.#stopped.signal.aborted) await this.#child.terminate();
    return this.#child;
  }

  /** Puts an event stream in force and catches up with what was missed. Returns the promise of the stream's end. */
  async #subscribe(): Promise<{ ended: Promise<Error> }> {
    const { namespace } = this.#options;
    await ensureNamespace(this.#connection, namespace);
    const ended = deferred<Error>();
    const stream = openEventStream(this.#connection, namespace, {
      onEvent: (event) => this.#tasks.report(event),
      onEnd: ended.resolve,
    });
    this.#closeStream = () => stream.close();
    try {
      await stream.subscribed;
      await this.#tasks.reconcile();
    } catch (error) {
      stream.close();
      throw error;
    }
    this.#witness?.close();
    this.#setState('ready');
    return { ended: ended.promise };
  }

  /** Renews the event stream whenever it ends, until `stop`. */
  async #follow(stream: { ended: Promise<Error> } | undefined): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      if (stream) this.#setState('degraded', messageOf(await stream.ended));
      else await this.#pause(RECONNECT_DELAY_MS);
      stream = await this.#subscribe().catch((error: unknown) => {
        this.#setState('degraded', messageOf(error));
        return undefined;
      });
    }
  }

  #setState(state: State, reason?: string): void {
    if (state === this.#state || this.#stopped.signal.aborted) return;
    this.#state = state;
    if (state === 'ready') this.#logger.info({}, 'supervisor is ready');
    else this.#logger.warn({ reason }, 'supervisor does not answer');
    for (const listener of this.#listeners) {
      try {
        listener(state, reason);
      } catch (error) {
        this.#logger.error({ err: error, state }, 'a listener for the state of the supervisor failed');
      }
    }
  }

  /** Waits, but no longer than until `stop`. */
  async #pause(ms: number): Promise<void> {
    await delay(ms, undefined, { signal: this.#stopped.signal }).catch(() => {});
  }
}

async function ensureNamespace(connection: GrpcConnection, name: string): Promise<void> {
  try {
    await connection.unary(Namespaces).create({ namespace: { name } }, { timeoutMs: NAMESPACE_TIMEOUT_MS });
  } catch (error) {
    if (!isEngineError(error, 'conflict')) throw error;
  }
}
