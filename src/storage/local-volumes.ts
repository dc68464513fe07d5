/** Volumes of the local driver: their files, and the mounts of volumes with options. */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { internal, messageOf } from '../errors/engine-error.js';
import { detachMount, mountPointsBelow } from '../sys/mount/mount.js';
import type { WorkerPool } from '../workers/pool.js';
import { LOCAL_DRIVER, type VolumeRecord, type VolumeRecords } from './volume-records.js';

export class LocalVolumes {
  /** Users of mounted volumes with options, by volume. */
  readonly #users = new Map<string, Set<string>>();

  constructor(
    private readonly records: VolumeRecords,
    private readonly mounters: WorkerPool,
  ) {}

  /** Finds the mounts that an earlier daemon left, whose containers may still run. */
  async load(): Promise<void> {
    // The mount table names real paths.
    const root = await realpath(this.records.root);
    for (const point of await mountPointsBelow(root)) {
      const name = point.slice(root.length + 1).split('/')[0] ?? '';
      if (this.records.find(name)?.driver === LOCAL_DRIVER) this.#users.set(name, new Set());
    }
  }

  /**
   * Mounts a volume if it has options, and returns its directory. @throws EngineError internal `error while mounting
   * volume '…': …`.
   */
  async open({ name, options }: VolumeRecord, user: string): Promise<string> {
    const mountpoint = this.records.files(name);
    const { type, device, o = '' } = options ?? {};
    if (type === undefined || device === undefined) return mountpoint;
    let users = this.#users.get(name);
    if (!users) {
      try {
        await this.mounters.run('mount-volume', { device, target: mountpoint, type, options: o });
      } catch (error) {
        throw internal(`error while mounting volume '${mountpoint}': ${messageOf(error)}`, { cause: error });
      }
      this.#users.set(name, (users = new Set()));
    }
    users.add(user);
    return mountpoint;
  }

  /** Tells that a volume stands for a directory of the host. */
  isBind({ options }: VolumeRecord): boolean {
    return (options?.['o'] ?? '').split(',').some((word) => word === 'bind' || word === 'rbind');
  }

  async closeUse({ name }: VolumeRecord, user: string): Promise<void> {
    const users = this.#users.get(name);
    if (users?.delete(user) && users.size === 0) await this.#unmount(name);
  }

  /** Returns the volumes that are mounted without a known user. */
  get idle(): string[] {
    return [...this.#users].flatMap(([name, users]) => (users.size === 0 ? [name] : []));
  }

  async unmountIdle(name: string): Promise<void> {
    if (this.#users.get(name)?.size === 0) await this.#unmount(name);
  }

  /** Takes away what is mounted there, whoever did it: the volume may not delete it. */
  async clear(name: string): Promise<void> {
    const home = join(await realpath(this.records.root), name);
    for (const point of (await mountPointsBelow(home)).toReversed()) await detachMount(point);
    this.#users.delete(name);
  }

  async #unmount(name: string): Promise<void> {
    await detachMount(this.records.files(name));
    this.#users.delete(name);
  }
}
