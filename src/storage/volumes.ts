/**
 * The local volume driver: `<root>/<name>/_data` holds the files of a volume, `volume.json` beside it what is known
 * about it. A volume appears and disappears by a rename, so a crash leaves it whole or not at all.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, invalid, isEngineError, notFound, notImplemented } from '../errors/engine-error.js';
import type { WorkerPool } from '../workers/pool.js';
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
}

type VolumeRecord = Omit<Volume, 'mountpoint'>;

const NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;
/** Names of volumes never begin with a dot. */
const UNFINISHED = '.new-';
const REMOVED = '.removed-';
const ANONYMOUS_LABEL = 'com.docker.volume.anonymous';

export class LocalVolumes {
  readonly #root: string;
  readonly #workers: WorkerPool;
  readonly #volumes = new Map<string, Volume>();
  readonly #lock = new KeyedLock();

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
      throw notFound(`error looking up volume plugin ${driver}: plugin "${driver}" not found`, { code: 'VOLUME_DRIVER' });
    }
    const name = request.name === '' ? randomBytes(32).toString('hex') : request.name;
    checkName(name);
    checkOptions(options);
    return this.#lock.run(name, async () => {
      const present = this.#volumes.get(name);
      if (present) return { ...present, created: false };
      const isAnonymous = request.anonymous ?? request.name === '';
      const volume = await this.#create({
        name,
        driver: 'local',
        createdAt: new Date().toISOString().replace(/\.\d+/, ''),
        labels: isAnonymous ? { ...request.labels, [ANONYMOUS_LABEL]: '' } : (request.labels ?? null),
        options: Object.keys(options).length > 0 ? options : null,
        isAnonymous,
      });
      return { ...volume, created: true };
    });
  }

  /**
   * Copies what the image has at `destination` into an empty volume, attributes kept. The container whose mounted
   * root file system `rootfs` is must not be running.
   */
  async populate(mountpoint: string, rootfs: string, destination: string): Promise<void> {
    await this.#workers.run('populate-volume', { mountpoint, rootfs, destination });
  }

  /** Deletes a volume with its files. Whether something uses it is for the caller to know. @throws EngineError not-found. */
  async remove(name: string): Promise<void> {
    await this.#lock.run(name, async () => {
      this.get(name);
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

  /** Bytes of the regular files of a volume. @throws EngineError not-found. */
  async size(name: string): Promise<number> {
    return this.#workers.run('tree-size', { path: this.get(name).mountpoint });
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
    throw invalid('volume name is too short, names should be at least two alphanumeric characters', { code: 'VOLUME_NAME' });
  }
  if (!NAME.test(name) || name.length > 255) {
    throw invalid(
      `"${name}" includes invalid characters for a local volume name, only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed. If you intended to pass a host directory, use absolute path`,
      { code: 'VOLUME_NAME' },
    );
  }
}

function checkOptions(options: Readonly<Record<string, string>>): void {
  for (const key of Object.keys(options)) {
    if (!['type', 'o', 'device', 'size'].includes(key)) throw invalid(`create volume: invalid option: "${key}"`, { code: 'VOLUME_OPTION' });
    throw notImplemented(`create volume: option "${key}" of the local driver is not supported`, { code: 'VOLUME_OPTION' });
  }
}
