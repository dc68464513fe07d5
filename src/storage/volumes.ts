/**
 * The local volume driver: `<root>/<name>/_data` holds the files of a volume, `volume.json` beside it what is known
 * about it. A volume appears and disappears by a rename, so a crash leaves it whole or not at all.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, realpath, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, internal, invalid, isEngineError, messageOf, notFound } from '../errors/engine-error.js';
import { detachMount, mountPointsBelow } from '../sys/mount.js';
import { createWorkerPool, type WorkerPool } from '../workers/pool.js';
import { checkVolumeOptions } from './local-mount.js';
import { KeyedLock } from './overlay2/keyed-lock.js';
import { randomName } from './overlay2/layout.js';
import { readRecord, syncDirectory, writeRecord } from './record-store.js';
import { storageError } from './storage-error.js';

export interface Volume {
  readonly name: string;
  readonly driver: 'local';
  /** Host directory. */
  readonly mountpoint: string;
  /** RFC 3339, seconds. */
  readonly createdAt: string;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly options: Readonly<Record<string, string>> | null;
  /** Its name was made by the daemon. */
  readonly isAnonymous: boolean;
}

export interface VolumeRequest {
  /** '' for a name made here. */
  readonly name: string;
  readonly anonymous?: boolean;
  readonly driver?: string;
  readonly options?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  /** Keeps it from being removed until `unpin`: its user is not known yet. */
  readonly pinned?: boolean;
}

type VolumeRecord = Omit<Volume, 'mountpoint'>;

const NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;
const MOUNTERS = 2;
/** Names of volumes never begin with a dot. */
const UNFINISHED = '.new-';
const REMOVED = '.removed-';
const ANONYMOUS_LABEL = 'com.docker.volume.anonymous';

export class LocalVolumes {
  readonly #root: string;
  readonly #workers: WorkerPool;
  readonly #volumes = new Map<string, Volume>();
  readonly #lock = new KeyedLock();
  /** Calls of `ensure` with `pinned` without their `unpin`. */
  readonly #pins = new Map<string, number>();
  /** Of volumes with options: who has them mounted. */
  readonly #users = new Map<string, Set<string>>();
  /** For mounts alone, which may wait for a server. */
  readonly #mounters = createWorkerPool({ maxThreads: MOUNTERS, tasksPerThread: 1 });

  constructor({ root, workers }: { readonly root: string; readonly workers: WorkerPool }) {
    this.#root = root;
    this.#workers = workers;
  }

  /** Reads all volumes. What a crash left is deleted; a damaged volume keeps its files and is reported. */
  async load(): Promise<{ readonly removed: readonly string[]; readonly damaged: readonly string[] }> {
    await mkdir(this.#root, { recursive: true, mode: 0o701 });
    const removed: string[] = [];
    const damaged: string[] = [];
    for (const entry of await readdir(this.#root, { withFileTypes: true })) {
      if (entry.name.startsWith(UNFINISHED) || entry.name.startsWith(REMOVED)) removed.push(entry.name);
      else if (entry.isDirectory() && !(await this.#loadVolume(entry.name))) damaged.push(entry.name);
    }
    // The mount table names real paths. An earlier daemon may have left mounts, whose containers may still run.
    const root = await realpath(this.#root);
    for (const point of await mountPointsBelow(root)) {
      const name = point.slice(root.length + 1).split('/')[0] ?? '';
      if (this.#volumes.has(name)) this.#users.set(name, new Set());
    }
    if (removed.length > 0) await this.#workers.run('remove-trees', { paths: removed.map((name) => join(this.#root, name)) });
    return { removed, damaged };
  }

  list(): Volume[] {
    return [...this.#volumes.values()];
  }

  find(name: string): Volume | undefined {
    return this.#volumes.get(name);
  }

  /** @throws EngineError not-found `get X: no such volume`. */
  get(name: string): Volume {
    const volume = this.#volumes.get(name);
    if (!volume) throw notFound(`get ${name}: no such volume`, { code: 'VOLUME_NOT_FOUND' });
    return volume;
  }

  /** True for a volume that got its name from the daemon. */
  isAnonymous(name: string): boolean {
    return this.#volumes.get(name)?.isAnonymous ?? false;
  }

  /**
   * Finds the volume or creates it; durable when the promise resolves. Options and labels of one that exists stay.
   * @throws EngineError invalid for a bad name or option, not-found for another driver than `local`.
   */
  async ensure(request: VolumeRequest): Promise<Volume & { readonly created: boolean }> {
    const { driver = 'local', options = {} } = request;
    if (driver !== '' && driver !== 'local') {
      throw notFound(`create ${request.name}: error looking up volume plugin ${driver}: plugin "${driver}" not found`, { code: 'VOLUME_DRIVER' });
    }
    const name = request.name === '' ? randomBytes(32).toString('hex') : request.name;
    checkName(name);
    checkVolumeOptions(name, options);
    return this.#lock.run(name, async () => {
      const pin = (): void => {
        if (request.pinned) this.#pins.set(name, (this.#pins.get(name) ?? 0) + 1);
      };
      const present = this.#volumes.get(name);
      if (present) {
        pin();
        return { ...present, created: false };
      }
      const isAnonymous = request.anonymous ?? request.name === '';
      const volume = await this.#create({
        name,
        driver: 'local',
        createdAt: new Date().toISOString().replace(/\.\d+/, ''),
        labels: isAnonymous ? { ...request.labels, [ANONYMOUS_LABEL]: '' } : (request.labels ?? null),
        options: Object.keys(options).length > 0 ? options : null,
        isAnonymous,
      });
      pin();
      return { ...volume, created: true };
    });
  }

  unpin(name: string): void {
    const pins = (this.#pins.get(name) ?? 0) - 1;
    if (pins > 0) this.#pins.set(name, pins);
    else this.#pins.delete(name);
  }

  /**
   * Makes the files of a volume be at its mountpoint, for a user with a name of its own; mounts with the first one.
   * @throws EngineError not-found; internal `error while mounting volume '…': …`.
   */
  open(name: string, user: string): Promise<string> {
    return this.#lock.run(name, async () => {
      const { mountpoint, options } = this.get(name);
      const { type, device, o = '' } = options ?? {};
      if (type === undefined || device === undefined) return mountpoint;
      let users = this.#users.get(name);
      if (!users) {
        try {
          await this.#mounters.run('mount-volume', { device, target: mountpoint, type, options: o });
        } catch (error) {
          throw internal(`error while mounting volume '${mountpoint}': ${messageOf(error)}`, { cause: error });
        }
        this.#users.set(name, (users = new Set()));
      }
      users.add(user);
      return mountpoint;
    });
  }

  /** Ends the use; unmounts with the last one. Idempotent. */
  closeUse(name: string, user: string): Promise<void> {
    return this.#lock.run(name, async () => {
      const users = this.#users.get(name);
      if (users?.delete(user) && users.size === 0) await this.#unmount(name);
    });
  }

  /** Whether some volume is mounted. */
  get hasMounts(): boolean {
    return this.#users.size > 0;
  }

  /** Unmounts what an earlier daemon left and nobody has taken over. */
  async unmountIdle(): Promise<void> {
    for (const name of this.#users.keys()) {
      await this.#lock.run(name, async () => {
        if (this.#users.get(name)?.size === 0) await this.#unmount(name);
      });
    }
  }

  /** Ends the threads. Mounts stay for the containers that stay. */
  close(): Promise<void> {
    return this.#mounters.close();
  }

  /**
   * Copies what the image has at `destination` into an empty volume, attributes kept. The container whose mounted
   * root file system `rootfs` is must not be running.
   */
  async populate(mountpoint: string, rootfs: string, destination: string): Promise<void> {
    await this.#lock.run(`populate ${mountpoint}`, () => this.#workers.run('populate-volume', { mountpoint, rootfs, destination }));
  }

  /**
   * Deletes a volume with its files; what is mounted there stays where it came from. Whether a container uses it is for
   * the caller to know. @throws EngineError not-found; conflict when a container that will use it is being made.
   */
  async remove(name: string): Promise<void> {
    await this.#lock.run(name, async () => {
      this.get(name);
      if (this.#pins.has(name)) throw conflict(`remove ${name}: volume is in use`, { code: 'VOLUME_IN_USE' });
      // What is mounted there, whoever did it, is not the volume's to delete.
      const home = join(await realpath(this.#root), name);
      for (const point of (await mountPointsBelow(home)).toReversed()) await detachMount(point);
      this.#users.delete(name);
      const trash = join(this.#root, REMOVED + randomName());
      try {
        await rename(join(this.#root, name), trash);
        this.#volumes.delete(name);
        await syncDirectory(this.#root);
        await this.#workers.run('remove-trees', { paths: [trash] });
      } catch (error) {
        throw storageError(error, `removing volume ${name}`);
      }
    });
  }

  /** Bytes on the disk of a volume with its record. @throws EngineError not-found. */
  async size(name: string): Promise<number> {
    this.get(name);
    return this.#workers.run('block-size', { paths: [join(this.#root, name)] });
  }

  async #unmount(name: string): Promise<void> {
    await detachMount(join(this.#root, name, '_data'));
    this.#users.delete(name);
  }

  async #create(record: VolumeRecord): Promise<Volume> {
    const staging = join(this.#root, UNFINISHED + randomName());
    const home = join(this.#root, record.name);
    try {
      await mkdir(join(staging, '_data'), { recursive: true, mode: 0o701 });
      await chmod(join(staging, '_data'), 0o755);
      await writeRecord(join(staging, 'volume.json'), record);
      await rename(staging, home);
      await syncDirectory(this.#root);
    } catch (error) {
      await this.#workers.run('remove-trees', { paths: [staging] });
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ENOTEMPTY' || code === 'EEXIST') throw conflict(`volume ${record.name} is damaged: its directory is there without its record`, { cause: error });
      throw storageError(error, `creating volume ${record.name}`);
    }
    return this.#keep(record);
  }

  #keep(record: VolumeRecord): Volume {
    const volume: Volume = { ...record, mountpoint: join(this.#root, record.name, '_data') };
    this.#volumes.set(record.name, volume);
    return volume;
  }

  async #loadVolume(name: string): Promise<boolean> {
    try {
      const record = (await readRecord(join(this.#root, name, 'volume.json'))) as VolumeRecord | undefined;
      if (record?.name === name) this.#keep(record);
      return record?.name === name;
    } catch (error) {
      if (isEngineError(error, 'data-loss')) return false;
      throw error;
    }
  }
}

function checkName(name: string): void {
  if (name.length === 1) {
    throw invalid(`create ${name}: volume name is too short, names should be at least two alphanumeric characters`, { code: 'VOLUME_NAME' });
  }
  if (!NAME.test(name) || name.length > 255) {
    throw invalid(
      `create ${name}: "${name}" includes invalid characters for a local volume name, only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed. If you intended to pass a host directory, use absolute path`,
      { code: 'VOLUME_NAME' },
    );
  }
}
