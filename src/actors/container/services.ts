/** Container operations that touch drivers but change no lifecycle state: sizes, processes, changes, limits, terminal size. */
import { conflict, EngineError, invalid } from '../../errors/engine-error.js';
import type { HostConfig } from '../../ports/container.js';
import type { Change, LayerStore } from '../../ports/storage.js';
import type { TaskService } from '../../ports/supervisor.js';
import type { ContainerCommand, WaitCondition, WaitResult } from './container.messages.js';
import { whileRunning } from './ended-task.js';
import { isRunning, type ContainerRecord } from './container.record.js';
import type { ContainerDirectory } from './directory.js';
import { runPs } from './top.js';

export interface ServiceDeps {
  readonly containers: ContainerDirectory;
  readonly layers: LayerStore;
  readonly tasks: TaskService;
  emit(action: string, record: ContainerRecord, attributes?: Readonly<Record<string, string>>): void;
  /** @throws EngineError invalid. */
  checkRestartPolicy(host: HostConfig): void;
  /** Checks merged limits and returns them as OCI `LinuxResources`, with warnings. */
  resources(host: HostConfig): Promise<{ readonly linux: Record<string, unknown>; readonly warnings: readonly string[] }>;
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

  /** Bytes of the writable layer, and of the whole root filesystem. */
  async sizes(record: ContainerRecord): Promise<{ rw: number; rootFs: number }> {
    const rw = await this.deps.layers.writableSize(record.id);
    return { rw, rootFs: rw + (record.topLayer ? this.deps.layers.chainSize(record.topLayer) : 0) };
  }

  async changes(record: ContainerRecord): Promise<Change[]> {
    return (await this.deps.layers.changes(record.id)).toSorted((a, b) => (a.path < b.path ? -1 : 1));
  }

  async resize(record: ContainerRecord, size: { width: number; height: number }): Promise<void> {
    await whileRunning(this.deps.tasks, record.id, this.deps.tasks.resize(record.id, size));
    this.deps.emit('resize', record, { height: String(size.height), width: String(size.width) });
  }

  /** Changes limits and restart policy, of a running container at once. Returns warnings, null when there are none. */
  async update(record: ContainerRecord, change: Partial<HostConfig>): Promise<readonly string[] | null> {
    const refuse = (error: EngineError): EngineError => new EngineError(error.kind, `Cannot update container ${record.id}: ${error.message}`, { cause: error });
    const hostConfig: HostConfig = { ...record.hostConfig, ...change };
    if (record.hostConfig.AutoRemove && change.RestartPolicy && change.RestartPolicy.Name !== 'no') {
      throw refuse(invalid(`Restart policy cannot be updated because AutoRemove is enabled for the container`));
    }
    if (change.Memory !== undefined && change.MemorySwap === undefined && hostConfig.MemorySwap > 0 && hostConfig.Memory > hostConfig.MemorySwap) {
      throw refuse(conflict('Memory limit should be smaller than already set memoryswap limit, update the memoryswap at the same time'));
    }
    this.deps.checkRestartPolicy(hostConfig);
    const { linux, warnings } = await this.deps.resources(hostConfig);
    if (isRunning(record)) await whileRunning(this.deps.tasks, record.id, this.deps.tasks.update(record.id, linux));
    const updated = await this.deps.containers.ask<Extract<ContainerCommand, { type: 'container.amend' }>>(record.id, {
      type: 'container.amend',
      amend: (current) => ({ ...current, hostConfig: { ...current.hostConfig, ...change } }),
    });
    this.deps.emit('update', updated);
    return warnings.length === 0 ? null : warnings;
  }

  /** Removes what `selected` picks; one prune at a time. */
  async prune(selected: (record: ContainerRecord) => boolean): Promise<{ ids: string[]; reclaimedBytes: number }> {
    if (this.#pruning) throw conflict('a prune operation is already running');
    this.#pruning = true;
    try {
      const ids: string[] = [];
      let reclaimedBytes = 0;
      for (const record of this.deps.containers.list().filter(selected)) {
        const bytes = await this.deps.layers.writableSize(record.id).catch(() => 0);
        try {
          await this.deps.containers.ask<Extract<ContainerCommand, { type: 'container.remove' }>>(record.id, { type: 'container.remove', options: { force: false, volumes: false } });
          ids.push(record.id);
          reclaimedBytes += bytes;
        } catch {
          // Started or removed by somebody else meanwhile: it is not ours to prune any more.
        }
      }
      return { ids, reclaimedBytes };
    } finally {
      this.#pruning = false;
    }
  }

  /** `ps` of the container's processes as seen from the host: titles and rows, the last column joined. */
  async top(record: ContainerRecord, psArgs: string): Promise<{ Titles: string[]; Processes: string[][] }> {
    const pids = await whileRunning(this.deps.tasks, record.id, this.deps.tasks.pids(record.id));
    return runPs(pids, psArgs);
  }
}
