/** The configuration in effect: what was loaded at the start, until a reload puts another one in its place. */
import type { Config } from './config.js';
import { OPTION_LIST } from './options.js';
import { reloadConfig, type ReloadEntry, type ReloadReport } from './reload.js';
import type { LoadedConfig } from './settings.js';
import { configView, type ConfigView } from './view.js';

/** What a reload did, as clients see it. */
export interface ReloadResult {
  readonly ok: boolean;
  readonly message: string;
  readonly entries: readonly ReloadEntry[];
}

export interface LiveConfigView extends ConfigView {
  readonly lastReload: (ReloadResult & { readonly time: string }) | null;
}

export class LiveConfig {
  #loaded: LoadedConfig;
  #lastReload: LiveConfigView['lastReload'] = null;
  readonly #listeners: ((result: ReloadResult) => void)[] = [];

  constructor(loaded: LoadedConfig) {
    this.#loaded = loaded;
  }

  /** To be read anew at each use: only options that are not reloadable stay what they are. */
  get current(): Config {
    return this.#loaded.config;
  }

  view(): LiveConfigView {
    return { ...configView(this.#loaded), lastReload: this.#lastReload };
  }

  /** Reads the file again. All of it takes effect or, when anything is wrong or `dryRun` is set, nothing. Never throws for what the file says. */
  reload({ dryRun }: { readonly dryRun: boolean }): ReloadResult {
    const { loaded, ...result }: ReloadReport = reloadConfig(this.#loaded);
    if (dryRun) return result;
    this.#loaded = loaded;
    this.#lastReload = { time: new Date().toISOString(), ...result };
    for (const listener of this.#listeners) listener(result);
    return result;
  }

  /** Called after each reload that was no dry run, also one that failed. */
  onReload(listener: (result: ReloadResult) => void): void {
    this.#listeners.push(listener);
  }

  /** Each reloadable setting by its key, as text: lists and maps are JSON. */
  reloadableSettings(): Readonly<Record<string, string>> {
    return Object.fromEntries(
      OPTION_LIST.filter(({ reloadable }) => reloadable).map(({ name, title }) => {
        const value = this.#loaded.settings.get(name)?.value;
        return [title, typeof value === 'string' ? value : JSON.stringify(value)];
      }),
    );
  }
}
