/** Finds the plugins of one kind by the names of drivers. */
import { isEngineError, notFound } from '../errors/engine-error.js';
import { pluginNames } from './discovery.js';
import type { PluginLimits } from './plugin-client.js';
import { Plugin, type PluginCapability, type PluginOptions } from './plugin.js';

/** A plugin has this long to answer when it is only asked of which kind it is. */
const GREETING_MS = 2000;

export class PluginDirectory {
  readonly #plugins = new Map<string, Plugin>();
  /** Names of plugins that have answered. */
  readonly #greeted = new Set<string>();

  constructor(
    readonly capability: PluginCapability,
    private readonly options: PluginOptions = {},
  ) {}

  get known(): readonly string[] {
    return [...this.#greeted];
  }

  /**
   * Finds and greets a plugin by its name, but never by a path, because clients choose the name. A managed plugin has
   * one name here, however it was asked for.
   * @throws EngineError not-found `plugin "X" not found`, also for a plugin of another kind; conflict for a managed one
   * that is disabled; unavailable, deadline, internal for one that does not answer as it should.
   */
  async find(name: string): Promise<Plugin> {
    const absent = (cause?: unknown): Error =>
      notFound(`plugin ${JSON.stringify(name)} not found`, { code: 'PLUGIN', cause });
    const managed = this.options.places?.managed?.find(name);
    if (managed === undefined && name.includes('/')) throw absent();
    const id = managed?.name ?? name;
    const plugin = this.#plugins.get(id) ?? new Plugin(id, this.capability, this.options);
    try {
      await plugin.activate();
    } catch (error) {
      if (isEngineError(error) && ['invalid', 'not-found', 'not-implemented'].includes(error.kind)) throw absent(error);
      throw error;
    }
    this.#plugins.set(id, plugin);
    this.#greeted.add(id);
    return plugin;
  }

  /** Returns all plugins of this kind that answer at once. */
  async installed(): Promise<Plugin[]> {
    const names = await pluginNames(this.options.places);
    const found = await Promise.allSettled(names.map((name) => this.#look(name)));
    return found.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  }

  async #look(name: string): Promise<Plugin> {
    if (this.#greeted.has(name)) return this.find(name);
    const limits: PluginLimits = { callMs: GREETING_MS, retryMs: 0 };
    const plugin = new Plugin(name, this.capability, { ...this.options, limits });
    await plugin.activate().finally(() => plugin.close());
    return this.find(name);
  }

  close(): void {
    for (const plugin of this.#plugins.values()) plugin.close();
    this.#plugins.clear();
  }
}
