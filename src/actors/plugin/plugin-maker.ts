/** Makes plugins of what clients and registries send, and publishes them under their names. */
import type { ArchiveSource } from '../../ports/archives.js';
import type { PluginRecord } from '../../ports/managed-plugin.js';
import { type CreatePluginDeps, fillFromArchive } from '../../plugins/managed/create-plugin.js';
import type { PluginStore, StagedPlugin } from '../../plugins/managed/plugin-store.js';
import { initialSettings } from '../../plugins/managed/settings.js';
import { newPluginName, type Plugins } from './plugins.js';

export interface PluginMakerDeps extends CreatePluginDeps {
  readonly plugins: Plugins;
  readonly store: PluginStore;
  readonly emit: (action: string, id: string, attributes: Readonly<Record<string, string>>) => void;
}

export class PluginMaker {
  constructor(private readonly deps: PluginMakerDeps) {}

  /**
   * Makes a plugin of an archive with `config.json` and `rootfs`.
   * @throws EngineError invalid for a name or an archive that is none; conflict when there is one of this name.
   */
  async create(text: string, source: ArchiveSource): Promise<PluginRecord> {
    const { plugins, store, emit } = this.deps;
    const { name } = newPluginName(text);
    // The client need not send everything to hear of it.
    plugins.requireFree(name);
    const record = await this.#staged(async (staged) => {
      const config = await fillFromArchive(this.deps, staged, source);
      const settings = initialSettings(config);
      const made = { name, reference: '', enabled: false, config, settings, timeoutSeconds: 0 };
      return plugins.install(name, () => store.publish(staged, made));
    });
    emit('create', record.id, { name });
    return record;
  }

  /** Deletes the files in the end, unless they were published. */
  async #staged<T>(make: (staged: StagedPlugin) => Promise<T>): Promise<T> {
    const staged = await this.deps.store.stage();
    try {
      return await make(staged);
    } finally {
      await this.deps.store.discard(staged);
    }
  }
}
