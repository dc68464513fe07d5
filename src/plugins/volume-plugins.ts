/** Volume drivers over the plugin protocol. */
import { join } from 'node:path';
import { internal } from '../errors/engine-error.js';
import type { VolumePlace } from '../ports/volume-place.js';
import type { PluginVolume, VolumePlugin, VolumePlugins } from '../ports/volume-plugin.js';
import { memberOf, PLUGIN_LIMITS, type PluginLimits } from './plugin-client.js';
import { PluginDirectory } from './plugin-directory.js';
import type { Plugin, PluginOptions } from './plugin.js';

/** Making and mounting may have to wait for a server that the driver uses. */
const WORK_LIMITS: PluginLimits = { ...PLUGIN_LIMITS, callMs: 120_000 };

export class ProtocolVolumePlugins implements VolumePlugins {
  readonly #directory: PluginDirectory;

  constructor(private readonly options: PluginOptions = {}) {
    this.#directory = new PluginDirectory('VolumeDriver', options);
  }

  get known(): readonly string[] {
    return this.#directory.known;
  }

  nameOf(name: string): string {
    return this.options.places?.managed?.find(name)?.name ?? name;
  }

  async find(name: string): Promise<VolumePlugin> {
    return new ProtocolVolumePlugin(await this.#directory.find(name));
  }

  async installed(): Promise<VolumePlugin[]> {
    return (await this.#directory.installed()).map((plugin) => new ProtocolVolumePlugin(plugin));
  }

  close(): void {
    this.#directory.close();
  }
}

class ProtocolVolumePlugin implements VolumePlugin {
  constructor(private readonly plugin: Plugin) {}

  get name(): string {
    return this.plugin.id;
  }

  async scope(): Promise<'local' | 'global'> {
    // Older drivers do not know this question.
    const answer = await this.plugin.ask('VolumeDriver.Capabilities', {}).catch(() => undefined);
    return memberOf(memberOf(answer, 'capabilities'), 'scope') === 'global' ? 'global' : 'local';
  }

  async create(volume: string, options: Readonly<Record<string, string>>): Promise<void> {
    await this.plugin.ask('VolumeDriver.Create', { Name: volume, Opts: options }, WORK_LIMITS);
  }

  async remove(volume: string): Promise<void> {
    await this.plugin.ask('VolumeDriver.Remove', { Name: volume }, WORK_LIMITS);
  }

  async get(volume: string): Promise<PluginVolume> {
    const answer = await this.plugin.ask('VolumeDriver.Get', { Name: volume });
    return this.#volumeOf('VolumeDriver.Get', memberOf(answer, 'volume'));
  }

  async list(): Promise<PluginVolume[]> {
    const volumes = memberOf(await this.plugin.ask('VolumeDriver.List', {}), 'volumes') ?? [];
    if (!Array.isArray(volumes))
      throw internal('VolumeDriver.List: "Volumes" in the answer is not a list', { code: 'PLUGIN' });
    return volumes.map((volume) => this.#volumeOf('VolumeDriver.List', volume));
  }

  async mount(volume: string, use: string): Promise<VolumePlace> {
    const mountpoint = memberOf(
      await this.plugin.ask('VolumeDriver.Mount', { Name: volume, ID: use }, WORK_LIMITS),
      'mountpoint',
    );
    if (typeof mountpoint !== 'string' || !mountpoint.startsWith('/'))
      throw internal('VolumeDriver.Mount: "Mountpoint" in the answer is not an absolute path', { code: 'PLUGIN' });
    // A managed plugin tells its own paths, and can make links in its files to any path of the host.
    return this.plugin.managed?.place(mountpoint) ?? { root: mountpoint, path: '' };
  }

  async unmount(volume: string, use: string): Promise<void> {
    await this.plugin.ask('VolumeDriver.Unmount', { Name: volume, ID: use }, WORK_LIMITS);
  }

  #volumeOf(method: string, value: unknown): PluginVolume {
    const volume = volumeOf(method, value);
    return volume.mountpoint === '' ? volume : { ...volume, mountpoint: this.#onHost(volume.mountpoint) };
  }

  /** A managed plugin tells its own paths. */
  #onHost(mountpoint: string): string {
    const place = this.plugin.managed?.place(mountpoint);
    return place === undefined ? mountpoint : join(place.root, place.path);
  }
}

function volumeOf(method: string, value: unknown): PluginVolume {
  const text = (name: string): string => {
    const member = memberOf(value, name) ?? '';
    if (typeof member !== 'string')
      throw internal(`${method}: "${name}" of a volume in the answer is not a text`, { code: 'PLUGIN' });
    return member;
  };
  const name = text('name');
  if (name === '') throw internal(`${method}: a volume in the answer has no name`, { code: 'PLUGIN' });
  const status = memberOf(value, 'status');
  return {
    name,
    mountpoint: text('mountpoint'),
    createdAt: text('createdat'),
    status: typeof status === 'object' && status !== null ? { ...status } : undefined,
  };
}
