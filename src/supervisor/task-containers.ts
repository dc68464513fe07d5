/** containerd's records of containers, which it needs for their tasks: one is made and removed with each task. */
import type { Logger } from '../ports/logger.js';
import type { CreateTask, OciSpec } from '../ports/supervisor.js';
import type { Any } from '@bufbuild/protobuf/wkt';
import { packOci } from './any.js';
import { isBrokenOff } from './grpc-error.js';
import type { GrpcConnection, UnaryClient } from './grpc-connection.js';
import { Containers } from './proto/gen/containers_pb.js';
import { packRuntimeOptions, RUNC_SHIM } from './runtime-options.js';
import type { TakenShim } from './shims/shim-pool.js';
import { READ, unlessNotFound } from './task-lookup.js';

/** The runc shim that serves a group of this name serves the task, too. Without it, the name is the task's ID. */
const SHIM_GROUP = 'io.containerd.runc.v2.group';
/** For a removal, which the end of the daemon waits for. */
const TIMEOUT_MS = 5_000;

export class TaskContainers {
  readonly #service: UnaryClient<typeof Containers>;
  readonly #logger: Logger;
  readonly #runcRoot: string;
  readonly #removals = new Map<string, Promise<void>>();

  /** @param runcRoot where the runtime keeps its state. */
  constructor(connection: GrpcConnection, logger: Logger, runcRoot: string) {
    this.#service = connection.unary(Containers);
    this.#logger = logger;
    this.#runcRoot = runcRoot;
  }

  /**
   * @param shim serves the task. Default: containerd starts one.
   * @returns the options of the runtime, which the task has, too, if a shim is given.
   * @throws EngineError conflict when there is one of this ID.
   */
  async create(task: CreateTask, shim?: TakenShim): Promise<Any | undefined> {
    const { id, spec, runtime, labels, ioOwner, shimOf } = task;
    const options = packRuntimeOptions(runtime, this.#runcRoot, ioOwner, shim?.address);
    const group = shim === undefined && runtime.type === RUNC_SHIM ? shimOf : undefined;
    const container = {
      id,
      labels: { ...labels },
      spec: packOci('Spec', group === undefined ? spec : inGroup(spec, group)),
      runtime: { name: runtime.type, ...(options && { options }) },
      ...(shim && { sandbox: shim.sandbox }),
    };
    await this.#removals.get(id);
    await this.#service.create({ container });
    return options;
  }

  /**
   * Removes one, if it is there. containerd syncs its database for that, and nobody has to wait: it is done before the
   * next one of this ID is made. One that a crash leaves is replaced by that, or removed by the next start.
   */
  remove(id: string): void {
    if (this.#removals.has(id)) return;
    const removal = this.#remove(id).finally(() => this.#removals.delete(id));
    this.#removals.set(id, removal);
  }

  /**
   * Begins to remove those that an earlier daemon left, as it was killed before this was done. To be called before
   * tasks are made.
   * @param known have a task.
   */
  async removeOthers(known: Iterable<string>): Promise<void> {
    const filters = [Array.from(known, (id) => `id!=${id}`).join(',')].filter((filter) => filter !== '');
    const { containers } = await this.#service.list({ filters }, READ);
    for (const { id } of containers) this.remove(id);
  }

  /** Returns the IDs of all, which no shim is asked for. */
  async ids(): Promise<string[]> {
    const { containers } = await this.#service.list({ filters: [] }, READ);
    return containers.map(({ id }) => id);
  }

  /** Resolves when no removal is under way. */
  async settled(): Promise<void> {
    await Promise.all(this.#removals.values());
  }

  async #remove(id: string): Promise<void> {
    const remove = (): Promise<unknown> => unlessNotFound(this.#service.delete({ id }, { timeoutMs: TIMEOUT_MS }));
    try {
      await remove().catch((error: unknown) => {
        if (!isBrokenOff(error)) throw error;
        return remove();
      });
    } catch (error) {
      this.#logger.warn({ id, err: error }, 'what the supervisor has of a task that is gone stays');
    }
  }
}

function inGroup(spec: OciSpec, group: string): OciSpec {
  return {
    ...spec,
    annotations: { ...(spec['annotations'] as Record<string, string> | undefined), [SHIM_GROUP]: group },
  };
}
