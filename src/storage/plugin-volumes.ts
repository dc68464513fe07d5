/**
 * Volumes of drivers in other processes. A driver may count its mounts, and outlives the daemon. So each use is noted
 * on disk, from before the driver is asked to mount until it has unmounted.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { conflict, internal, isEngineError, messageOf, notFound } from '../errors/engine-error.js';
import { PLUGIN_REFUSED } from '../ports/plugin.js';
import type { VolumePlace } from '../ports/volume-place.js';
import type { PluginVolume, VolumePlugin, VolumePlugins } from '../ports/volume-plugin.js';
import { readRecord, writeRecord } from './record-store.js';
import { LOCAL_DRIVER, type VolumeRecord, type VolumeRecords } from './volume-records.js';

/** A volume that a driver says it has. */
export interface Offer {
  readonly plugin: VolumePlugin;
  readonly volume: PluginVolume;
}

type Uses = Map<string, Set<string>>;

export class PluginVolumes {
  /** Users by volume. */
  readonly #users: Uses = new Map();
  /** Uses to be ended as soon as the driver can: those of an earlier run, and those that failed. */
  readonly #stale: Uses = new Map();
  readonly #mountpoints = new Map<string, string>();

  constructor(
    private readonly records: VolumeRecords,
    private readonly plugins: VolumePlugins,
  ) {}

  async load(): Promise<void> {
    for (const { name, driver } of this.records.list()) {
      if (driver === LOCAL_DRIVER) continue;
      // A damaged record names nobody.
      const users = (await readRecord(this.#usesPath(name)).catch(() => undefined)) as string[] | undefined;
      if (users && users.length > 0) this.#stale.set(name, new Set(users));
    }
  }

  /** Returns the host directory as the driver last told it; '' for unknown. */
  mountpoint(name: string): string {
    return this.#mountpoints.get(name) ?? '';
  }

  /** Returns the name by which volumes know a driver. */
  nameOf(name: string): string {
    return this.plugins.nameOf(name);
  }

  /** Finds a driver. @throws EngineError not-found in the known engine's words, or the failure of the driver. */
  async driver(name: string): Promise<VolumePlugin> {
    try {
      return await this.plugins.find(name);
    } catch (error) {
      const text = `error looking up volume plugin ${name}: ${messageOf(error)}`;
      throw isEngineError(error, 'not-found')
        ? notFound(text, { code: 'VOLUME_DRIVER', cause: error })
        : internal(text, { code: 'VOLUME_DRIVER', cause: error });
    }
  }

  /** Makes the volume unless the driver has it already. */
  async create(name: string, plugin: VolumePlugin, options: Readonly<Record<string, string>>): Promise<void> {
    const present = await plugin.get(name).catch(() => undefined);
    if (!present) await plugin.create(name, options);
    const made = present ?? (await plugin.get(name).catch(() => undefined));
    this.#mountpoints.set(name, made?.mountpoint ?? '');
  }

  /** Returns the facts that the driver of a volume tells about it. @throws EngineError of the driver. */
  async get({ name, driver }: VolumeRecord): Promise<PluginVolume> {
    const volume = await (await this.driver(driver)).get(name);
    if (volume.mountpoint !== '') this.#mountpoints.set(name, volume.mountpoint);
    return volume;
  }

  /** Finds a driver that has a volume of this name. */
  async search(name: string): Promise<Offer | undefined> {
    const plugins = await this.plugins.installed();
    const found = await Promise.allSettled(plugins.map(async (plugin) => ({ plugin, volume: await plugin.get(name) })));
    return found.find((result) => result.status === 'fulfilled')?.value;
  }

  /** Returns the volumes that all drivers have, and the failures of drivers that do not answer. */
  async offers(): Promise<{
    readonly offers: Offer[];
    readonly failures: { readonly driver: string; readonly reason: string }[];
  }> {
    const plugins = await this.plugins.installed();
    const lists = await Promise.allSettled(plugins.map((plugin) => plugin.list()));
    const offers: Offer[] = [];
    const failures: { driver: string; reason: string }[] = [];
    for (const [index, plugin] of plugins.entries()) {
      const list = lists[index];
      if (list?.status === 'fulfilled') offers.push(...list.value.map((volume) => ({ plugin, volume })));
      else failures.push({ driver: plugin.name, reason: messageOf(list?.reason) });
    }
    const named = new Set(plugins.map(({ name }) => name));
    const gone = new Set(
      this.records.list().flatMap(({ driver }) => (driver === LOCAL_DRIVER || named.has(driver) ? [] : [driver])),
    );
    return {
      offers,
      failures: [...failures, ...[...gone].map((driver) => ({ driver, reason: 'the driver does not answer' }))],
    };
  }

  /** Mounts a volume. @throws EngineError internal `error while mounting volume '…': …`. */
  async open(record: VolumeRecord, user: string): Promise<VolumePlace> {
    const { name } = record;
    try {
      const plugin = await this.driver(record.driver);
      // An earlier daemon mounted the volume for a container that has ended: the driver would count that use twice.
      if (this.#stale.get(name)?.has(user) === true) await this.#unmount(plugin, name, user).catch(unlessRefused);
      add(this.#users, name, user);
      await this.#note(name).catch((error: unknown) => {
        drop(this.#users, name, user);
        throw error;
      });
      const place = await this.#mount(plugin, name, user);
      this.#mountpoints.set(name, join(place.root, place.path));
      return place;
    } catch (error) {
      throw internal(`error while mounting volume '${this.mountpoint(name)}': ${messageOf(error)}`, { cause: error });
    }
  }

  async #mount(plugin: VolumePlugin, name: string, user: string): Promise<VolumePlace> {
    try {
      return await plugin.mount(name, useId(name, user));
    } catch (error) {
      drop(this.#users, name, user);
      if (isRefusal(error)) await this.#note(name);
      else {
        // A driver that is late, or whose answer is of no use, may have mounted the volume. The next use makes up for
        // that.
        add(this.#stale, name, user);
        this.#unmount(plugin, name, user).catch(() => undefined);
      }
      throw error;
    }
  }

  /** Takes over the use of a container that outlived a daemon: its volume is mounted. */
  async adopt({ name }: VolumeRecord, user: string): Promise<void> {
    drop(this.#stale, name, user);
    add(this.#users, name, user);
    await this.#note(name);
  }

  async closeUse({ name, driver }: VolumeRecord, user: string): Promise<void> {
    if (this.#users.get(name)?.has(user) !== true && this.#stale.get(name)?.has(user) !== true) return;
    drop(this.#users, name, user);
    add(this.#stale, name, user);
    await this.#unmount(await this.driver(driver), name, user);
  }

  /** Unmounts a use. If the driver refuses, the use is over, too, because the driver does not know it. */
  async #unmount(plugin: VolumePlugin, name: string, user: string): Promise<void> {
    const refusal = await plugin.unmount(name, useId(name, user)).catch((error: unknown) => {
      unlessRefused(error);
      return error;
    });
    drop(this.#stale, name, user);
    await this.#note(name);
    if (refusal !== undefined) throw refusal;
  }

  /** Returns the volumes with uses that nobody has taken over. */
  get idle(): string[] {
    return [...this.#stale.keys()];
  }

  async unmountIdle({ name, driver }: VolumeRecord): Promise<void> {
    const users = [...(this.#stale.get(name) ?? [])];
    if (users.length === 0) return;
    const plugin = await this.driver(driver);
    for (const user of users) await this.#unmount(plugin, name, user).catch(unlessRefused);
  }

  /** Removes the volume from its driver. @throws EngineError conflict while it is used, or what the driver says. */
  async remove(record: VolumeRecord): Promise<void> {
    if (this.#users.has(record.name)) throw conflict('volume is in use', { code: 'VOLUME_IN_USE' });
    await this.unmountIdle(record);
    await (await this.driver(record.driver)).remove(record.name);
  }

  forget(name: string): void {
    for (const map of [this.#users, this.#stale, this.#mountpoints]) map.delete(name);
  }

  #usesPath(name: string): string {
    return join(this.records.home(name), 'uses.json');
  }

  #note(name: string): Promise<void> {
    return writeRecord(this.#usesPath(name), [...(this.#users.get(name) ?? []), ...(this.#stale.get(name) ?? [])]);
  }
}

function isRefusal(error: unknown): boolean {
  return isEngineError(error) && error.code === PLUGIN_REFUSED;
}

function unlessRefused(error: unknown): void {
  if (!isRefusal(error)) throw error;
}

/** Returns an ID that is the same for the same user in every run. */
function useId(name: string, user: string): string {
  return createHash('sha256').update(`${name} ${user}`).digest('hex');
}

function add(uses: Uses, name: string, user: string): void {
  uses.set(name, (uses.get(name) ?? new Set()).add(user));
}

function drop(uses: Uses, name: string, user: string): void {
  const users = uses.get(name);
  if (users?.delete(user) && users.size === 0) uses.delete(name);
}
