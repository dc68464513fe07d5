/**
 * Container operations that touch drivers but change no lifecycle state: sizes, processes, changes, limits, terminal
 * size.
 */
import { conflict, notFound } from '../../errors/engine-error.js';
import type { HostConfig } from '../../ports/container.js';
import type { Change, LayerStore } from '../../ports/storage.js';
import type { WaitCondition, WaitResult } from './container.messages.js';
import { whileRunning } from './life/ended-task.js';
import { isRunning, type ContainerRecord } from './container.record.js';
import { withoutLink } from './network/legacy-links.js';
import { type ProcessList, runPs } from './top.js';
import { updateContainer, type UpdateDeps } from './life/update.js';

export interface ServiceDeps extends UpdateDeps {
  readonly layers: LayerStore;
  writeFiles(record: ContainerRecord): Promise<unknown>;
  emit(action: string, record: ContainerRecord, attributes?: Readonly<Record<string, string>>): void;
  /** Returns the processes of a running container, as the host numbers them. */
  pids(record: ContainerRecord): Promise<readonly number[]>;
  /** Returns the bytes on the disk of what the container wrote, its logs and its record. */
  diskBytes(id: string): Promise<number>;
  /** Announces that containers were pruned, and how many bytes that freed. */
  emitPrune(reclaimedBytes: number): void;
}

export class ContainerServices {
  #pruning = false;

  constructor(private readonly deps: ServiceDeps) {}

  emit(action: string, record: ContainerRecord, attributes?: Readonly<Record<string, string>>): void {
    this.deps.emit(action, record, attributes);
  }

  wait(reference: string, condition: WaitCondition, signal: AbortSignal): Promise<WaitResult> {
    return this.deps.containers.wait(reference, condition, signal);
  }

  /** Returns the bytes of the writable layer, and of the whole root filesystem. */
  async sizes(record: ContainerRecord): Promise<{ rw: number; rootFs: number }> {
    const rw = await this.#whileThere(record, this.deps.layers.writableSize(record.id));
    return { rw, rootFs: rw + (record.topLayer ? this.deps.layers.chainSize(record.topLayer) : 0) };
  }

  changes(record: ContainerRecord): Promise<Iterable<Change>> {
    return this.#whileThere(record, this.deps.layers.changes(record.id));
  }

  /**
   * Awaits work on a container. If it fails because the container is being removed, the error says that there is none.
   */
  async #whileThere<T>({ id }: ContainerRecord, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      const status = this.deps.containers.get(id)?.state.status;
      if (status === undefined || status === 'removing')
        throw notFound(`No such container: ${id}`, { code: 'NO_SUCH_CONTAINER', cause: error });
      throw error;
    }
  }

  async resize(record: ContainerRecord, size: { width: number; height: number }): Promise<void> {
    await whileRunning(this.deps.tasks, record.id, this.deps.tasks.resize(record.id, size));
    this.deps.emit('resize', record, { height: String(size.height), width: String(size.width) });
  }

  /** Changes limits and restart policy. Returns warnings, null when there are none. */
  async update(record: ContainerRecord, change: Partial<HostConfig>): Promise<readonly string[] | null> {
    const { updated, warnings } = await updateContainer(this.deps, record, change);
    this.deps.emit('update', updated);
    return warnings.length === 0 ? null : warnings;
  }

  /** Takes a link away, also from the hosts file of a running container. */
  async unlink(record: ContainerRecord, alias: string): Promise<void> {
    const amended = await this.deps.containers.amend(record.id, {
      amend: (current) => withoutLink(current, alias),
    });
    if (isRunning(amended)) await this.deps.writeFiles(amended);
  }

  /** Removes what `selected` picks; one prune at a time. */
  async prune(selected: (record: ContainerRecord) => boolean): Promise<{ ids: string[]; reclaimedBytes: number }> {
    if (this.#pruning) throw conflict('a prune operation is already running');
    this.#pruning = true;
    try {
      const ids: string[] = [];
      let reclaimedBytes = 0;
      for (const record of this.deps.containers.list().filter(selected)) {
        const bytes = await this.deps.diskBytes(record.id).catch(() => 0);
        try {
          await this.deps.containers.remove(record.id, { force: false, volumes: false });
          ids.push(record.id);
          reclaimedBytes += bytes;
        } catch {
          // Somebody else has started or removed the container meanwhile, so it is not pruned.
        }
      }
      await this.deps.layers.reclaimed();
      this.deps.emitPrune(reclaimedBytes);
      return { ids, reclaimedBytes };
    } finally {
      this.#pruning = false;
    }
  }

  /** Returns `ps` of the container's processes as seen from the host: titles and rows, the last column joined. */
  async top(record: ContainerRecord, psArgs: string): Promise<ProcessList> {
    const pids = await whileRunning(this.deps.tasks, record.id, this.deps.pids(record));
    const rows = await runPs(pids, psArgs);
    this.deps.emit('top', record);
    return rows;
  }
}
