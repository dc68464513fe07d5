/** The plugins of one kind that drivers' names lead to. */
import { isEngineError, notFound } from '../errors/engine-error.js';
import { pluginNames } from './discovery.js';
import type { PluginLimits } from './plugin-client.js';
import { Plugin, type PluginCapability, type PluginOptions } from './plugin.js';

/** For a plugin that is only looked whether it is one. */
const GREETING_MS = 2000;

export class PluginDirectory {
  readonly #plugins = new Map<string, Plugin>();
  /** Those that have answered. */
  readonly #greeted = new Set<string>();

  constructor(
    readonly capability: PluginCapability,
    private readonly options: PluginOptions = {},
  ) {}

  get known(): readonly string[] {
    return [...this.#greeted];
  }

  /**
   * Finds and greets a plugin by its name, never by a path: clients choose it.
   * @throws EngineError not-found `plugin "X" not found`, also for one of another kind; unavailable, deadline, internal
   * for one that does not answer as it should.
   */
  async find(name: string): Promise<Plugin> {
    const absent = (cause?: unknown): Error =>
      notFound(`plugin ${JSON.stringify(name)} not found`, { code: 'PLUGIN', cause });
    if (name.includes('/')) throw absent();
    const plugin = this.#plugins.get(name) ?? new Plugin(name, this.capability, this.options);
    try {
      await plugin.activate();
    } catch (error) {
      if (isEngineError(error) && ['invalid', 'not-found', 'not-implemented'].includes(error.kind)) throw absent(error);
      throw error;
    }
    this.#plugins.set(name, plugin);
    this.#greeted.add(name);
    return plugin;
  }

  /** All plugins of this kind that are there and answer at once. */
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
