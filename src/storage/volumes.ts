/** All volumes of this daemon: those of the local driver and of plugins. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import {
  conflict,
  EngineError,
  internal,
  invalid,
  isEngineError,
  messageOf,
  notFound,
} from '../errors/engine-error.js';
import type { IdMaps, Owner } from '../ports/id-maps.js';
import type { VolumePlace } from '../ports/volume-place.js';
import type { PluginVolume, VolumePlugins } from '../ports/volume-plugin.js';
import { withUserNamespace } from '../sys/users/kept-namespaces.js';
import { createWorkerPool, type WorkerPool } from '../workers/pool.js';
import { checkVolumeOptions } from './local-mount.js';
import { LocalVolumes } from './local-volumes.js';
import { KeyedLock } from './keyed-lock.js';
import { PluginVolumes } from './plugin-volumes.js';
import { LOCAL_DRIVER, type RemovedVolume, type VolumeRecord, VolumeRecords } from './volume-records.js';

export interface Volume extends VolumeRecord {
  /** Host directory; '' if another driver has not told it yet. */
  readonly mountpoint: string;
  /** Another driver tells this about its volume. */
  readonly status?: Readonly<Record<string, unknown>>;
}

export interface VolumeRequest {
  /** '' asks for a name that is made here. */
  readonly name: string;
  readonly anonymous?: boolean;
  /** If it is absent or '', the driver that has the volume is used, else the local one. */
  readonly driver?: string;
  readonly options?: Readonly<Record<string, string>>;
  readonly labels?: Readonly<Record<string, string>>;
  /** If true, the volume cannot be removed until `unpin`, because its user is not known yet. */
  readonly pinned?: boolean;
}

export interface VolumeParts {
  readonly root: string;
  readonly workers: WorkerPool;
  readonly plugins: VolumePlugins;
  /** Owner of new volumes of the local driver. */
  readonly owner?: Owner;
  /** Tells everybody that a volume is gone; it resolves when that survives a kill of the daemon. */
  readonly removed?: (name: string, driver: string) => Promise<void>;
}

const MOUNTERS = 4;
const NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;
const ANONYMOUS_LABEL = 'com.docker.volume.anonymous';

export class Volumes {
  readonly #records: VolumeRecords;
  readonly #local: LocalVolumes;
  readonly #others: PluginVolumes;
  readonly #workers: WorkerPool;
  /** Threads for mounts only, which may wait for a server or a plugin. */
  readonly #mounters = createWorkerPool({ maxThreads: MOUNTERS, tasksPerThread: 1 });
  readonly #lock = new KeyedLock();
  readonly #tell: (name: string, driver: string) => Promise<void>;
  /** Number of calls of `ensure` with `pinned` that had no `unpin` yet, by volume. */
  readonly #pins = new Map<string, number>();

  constructor({ root, workers, plugins, owner = { uid: 0, gid: 0 }, removed = () => Promise.resolve() }: VolumeParts) {
    this.#tell = removed;
    this.#workers = workers;
    this.#records = new VolumeRecords(root, workers, owner);
    this.#local = new LocalVolumes(this.#records, this.#mounters);
    this.#others = new PluginVolumes(this.#records, plugins);
  }

  /** Reads all volumes. What a crash left is deleted; a damaged volume keeps its files and is reported. */
  async load(): Promise<{ readonly removed: readonly string[]; readonly damaged: readonly string[] }> {
    const found = await this.#records.load();
    await Promise.all([this.#local.load(), this.#others.load()]);
    return found;
  }

  /** Returns the volumes that this daemon has made or used. */
  list(): Volume[] {
    return this.#records.list().map((record) => this.#shown(record));
  }

  /** Returns the volumes that an earlier daemon was removing at its end: it may not have told of that. */
  get removed(): RemovedVolume[] {
    return this.#records.removed;
  }

  /** Deletes what is left of those. */
  clearRemoved(): Promise<void> {
    return this.#records.clearRemoved();
  }

  /**
   * Returns these volumes and those that other drivers have from elsewhere; a driver that does not answer yields a
   * warning.
   */
  async listAll(): Promise<{ readonly volumes: Volume[]; readonly warnings: string[] }> {
    const { offers, failures } = await this.#others.offers();
    const failed = new Set(failures.map(({ driver }) => driver));
    const known = this.list().filter(({ driver }) => driver === LOCAL_DRIVER || failed.has(driver));
    const told = offers.map(({ plugin, volume }) => {
      const record = this.#records.find(volume.name);
      return withAnswer(record?.driver === plugin.name ? record : foreign(volume.name, plugin.name), volume);
    });
    return {
      volumes: [...known, ...told],
      warnings: failures.map(({ driver, reason }) => `list ${driver}: ${reason}`),
    };
  }

  /** Returns a volume. @throws EngineError not-found `get X: no such volume`. */
  get(name: string): Volume {
    const record = this.#records.find(name);
    if (!record) throw missing(name);
    return this.#shown(record);
  }

  /** Returns a volume as its driver knows it now. @throws EngineError as `get`, or the failure of the driver. */
  async inspect(name: string): Promise<Volume> {
    const record = this.#records.find(name);
    if (record?.driver === LOCAL_DRIVER) return this.#shown(record);
    if (record)
      return withAnswer(record, await this.#others.get(record).catch((error: unknown) => said('get', name, error)));
    const offer = NAME.test(name) ? await this.#others.search(name) : undefined;
    if (!offer) throw missing(name);
    return withAnswer(foreign(name, offer.plugin.name, await offer.plugin.scope()), offer.volume);
  }

  /** True for a volume that got its name from the daemon. */
  isAnonymous(name: string): boolean {
    return this.#records.find(name)?.isAnonymous ?? false;
  }

  /**
   * Finds the volume or creates it; durable when the promise resolves. An existing volume keeps its options and labels.
   * @throws EngineError invalid for a bad name or option, not-found for a missing driver, conflict for a volume of
   * another driver, internal for a driver's failure.
   */
  async ensure(request: VolumeRequest): Promise<Volume & { readonly created: boolean }> {
    const name = request.name === '' ? randomBytes(32).toString('hex') : request.name;
    checkName(name);
    return this.#lock.run(name, async () => {
      const asked = request.driver ?? '';
      const wanted = asked === '' || asked === LOCAL_DRIVER ? asked : this.#others.nameOf(asked);
      const present = this.#records.find(name);
      if (present && wanted !== '' && present.driver !== wanted) {
        throw conflict(
          `create ${name}: conflict: driver '${present.driver}' already has volume '${name}': ` +
            'volume name must be unique',
          { code: 'VOLUME_NAME_TAKEN' },
        );
      }
      const record = present ?? (await this.#create(name, wanted, request));
      if (request.pinned) this.#pins.set(name, (this.#pins.get(name) ?? 0) + 1);
      return { ...this.#shown(record), created: !present };
    });
  }

  async #create(name: string, wanted: string, request: VolumeRequest): Promise<VolumeRecord> {
    const { options = {}, labels } = request;
    const isAnonymous = request.anonymous ?? request.name === '';
    // Nobody else knows a name that was just made.
    const driver = wanted || (isAnonymous ? undefined : (await this.#others.search(name))?.plugin.name) || LOCAL_DRIVER;
    let scope: 'local' | 'global' = 'local';
    if (driver === LOCAL_DRIVER) checkVolumeOptions(name, options);
    else {
      try {
        const plugin = await this.#others.driver(driver);
        scope = await plugin.scope();
        await this.#others.create(name, plugin, options);
      } catch (error) {
        said('create', name, error);
      }
    }
    const record: VolumeRecord = {
      name,
      driver,
      createdAt: new Date().toISOString().replace(/\.\d+/, ''),
      labels: isAnonymous ? { ...labels, [ANONYMOUS_LABEL]: '' } : (labels ?? null),
      options: Object.keys(options).length > 0 ? options : null,
      isAnonymous,
      ...(scope === 'global' ? { scope } : {}),
    };
    await this.#records.add(record);
    return record;
  }

  unpin(name: string): void {
    const pins = (this.#pins.get(name) ?? 0) - 1;
    if (pins > 0) this.#pins.set(name, pins);
    else this.#pins.delete(name);
  }

  /**
   * Opens a volume for a user, and says where its files are.
   * @throws EngineError not-found; internal `error while mounting volume '…': …`.
   */
  open(name: string, user: string): Promise<VolumePlace> {
    return this.#lock.run(name, async () => {
      const record = this.get(name);
      if (record.driver !== LOCAL_DRIVER) return this.#others.open(record, user);
      return { root: await this.#local.open(record, user), path: '', isOwn: !this.#local.isBind(record) };
    });
  }

  /** As `open`, for a container that has had it open since before the daemon started. */
  async adopt(name: string, user: string): Promise<void> {
    await this.#lock.run<unknown>(name, () => {
      const record = this.get(name);
      return record.driver === LOCAL_DRIVER ? this.#local.open(record, user) : this.#others.adopt(record, user);
    });
  }

  /** Ends the use. Idempotent. @throws EngineError what another driver says; it is asked again at its next use. */
  closeUse(name: string, user: string): Promise<void> {
    return this.#lock.run(name, async () => {
      const record = this.#records.find(name);
      if (record) await (record.driver === LOCAL_DRIVER ? this.#local : this.#others).closeUse(record, user);
    });
  }

  /** Tells whether an earlier daemon may have left uses that nobody has taken over. */
  get hasIdle(): boolean {
    return this.#local.idle.length + this.#others.idle.length > 0;
  }

  /** Ends the uses of an earlier daemon that nobody has taken over. @throws the first failure when all were tried. */
  async unmountIdle(): Promise<void> {
    const results = await Promise.allSettled([
      ...this.#local.idle.map((name) => this.#lock.run(name, () => this.#local.unmountIdle(name))),
      ...this.#others.idle.map((name) => this.#lock.run(name, () => this.#others.unmountIdle(this.get(name)))),
    ]);
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Ends the threads. Mounts stay for the containers that stay. */
  close(): Promise<void> {
    return this.#mounters.close();
  }

  /**
   * Makes `target`, in a directory of the daemon, and shows there what is at a subpath ('' for all) of an open volume.
   * The caller unmounts it. With `maps` its files are those of the users of a container's own.
   * @throws EngineError not-found or invalid for the subpath; unavailable when the file system cannot map ids.
   */
  async show(place: VolumePlace, subpath: string, target: string, maps?: IdMaps): Promise<void> {
    if (!maps) return this.#mounters.run('show-volume', { place, subpath, target });
    await withUserNamespace(maps, (usernsFd) =>
      this.#mounters.run('show-volume', { place, subpath, target, usernsFd }),
    );
  }

  /**
   * Copies what the image has at `destination` into an empty volume, or into an empty directory of it, attributes kept.
   * The container whose mounted root file system `rootfs` is must not be running.
   */
  async populate(
    volume: VolumePlace,
    subpath: string,
    source: { readonly rootfs: string; readonly destination: string },
  ): Promise<void> {
    await this.#lock.run(`populate ${join(volume.root, volume.path)}`, () =>
      this.#workers.run('populate-volume', { volume, subpath, ...source }),
    );
  }

  /**
   * Deletes a volume with its files; what is mounted there is only unmounted. The caller must know whether a container
   * uses it. With `force` it is forgotten even when its driver fails to remove it. It is told, and its driver returned.
   * @throws EngineError not-found; conflict when a container that will use it is being made; the failure of another
   * driver.
   */
  remove(name: string, force = false): Promise<string> {
    return this.#lock.run(name, async () => {
      const record = this.#records.find(name);
      if (this.#pins.has(name)) throw conflict(`remove ${name}: volume is in use`, { code: 'VOLUME_IN_USE' });
      if (!record) return this.#removeForeign(name);
      if (record.driver === LOCAL_DRIVER) await this.#local.clear(name);
      else {
        await this.#others
          .remove(record)
          .catch((error: unknown) =>
            force && !isEngineError(error, 'conflict') ? undefined : said('remove', name, error),
          );
        this.#others.forget(name);
      }
      await this.#records.remove(name, () => this.#tell(name, record.driver));
      return record.driver;
    });
  }

  async #removeForeign(name: string): Promise<string> {
    const offer = NAME.test(name) ? await this.#others.search(name) : undefined;
    if (!offer) throw missing(name);
    await offer.plugin.remove(name).catch((error: unknown) => said('remove', name, error));
    void this.#tell(name, offer.plugin.name);
    return offer.plugin.name;
  }

  /** Returns the bytes on the disk of a local volume and its record. @throws EngineError not-found. */
  async size(name: string): Promise<number> {
    this.get(name);
    return this.#workers.run('block-size', { paths: [this.#records.home(name)] });
  }

  #shown(record: VolumeRecord): Volume {
    return {
      ...record,
      mountpoint:
        record.driver === LOCAL_DRIVER ? this.#records.files(record.name) : this.#others.mountpoint(record.name),
    };
  }
}

/** A volume that its driver has from elsewhere. */
function foreign(name: string, driver: string, scope: 'local' | 'global' = 'local'): VolumeRecord {
  return {
    name,
    driver,
    createdAt: '',
    labels: null,
    options: null,
    isAnonymous: false,
    ...(scope === 'global' ? { scope } : {}),
  };
}

function withAnswer(record: VolumeRecord, { mountpoint, createdAt, status }: PluginVolume): Volume {
  return {
    ...record,
    mountpoint,
    createdAt: createdAt || record.createdAt,
    ...(status === undefined ? {} : { status }),
  };
}

function missing(name: string): EngineError {
  return notFound(`get ${name}: no such volume`, { code: 'VOLUME_NOT_FOUND' });
}

/** Throws the failure of a driver, with what was asked of it. */
function said(action: string, name: string, error: unknown): never {
  const text = `${action} ${name}: ${messageOf(error)}`;
  if (error instanceof EngineError && (error.kind === 'not-found' || error.kind === 'conflict'))
    throw new EngineError(error.kind, text, { code: error.code ?? 'VOLUME_DRIVER', cause: error });
  throw internal(text, { code: 'VOLUME_DRIVER', cause: error });
}

function checkName(name: string): void {
  if (name.length === 1) {
    throw invalid(`create ${name}: volume name is too short, names should be at least two alphanumeric characters`, {
      code: 'VOLUME_NAME',
    });
  }
  if (!NAME.test(name) || name.length > 255) {
    throw invalid(
      `create ${name}: "${name}" includes invalid characters for a local volume name, ` +
        'only "[a-zA-Z0-9][a-zA-Z0-9_.-]" are allowed. ' +
        'If you intended to pass a host directory, use absolute path',
      { code: 'VOLUME_NAME' },
    );
  }
}
