/** The configuration in effect: what was loaded at the start, until a reload puts another one in its place. */
import { isEngineError } from '../errors/engine-error.js';
import type { Config, FixedConfig, ReloadableConfig } from './config.js';
import { OPTION_LIST } from './options.js';
import { reloadConfig, type ReloadEntry, type ReloadReport } from './reload.js';
import type { LoadedConfig, Notice } from './settings.js';
import { configView, type ConfigView } from './view.js';

/** This is the result of a reload, as clients see it. */
export interface ReloadResult {
  readonly ok: boolean;
  readonly message: string;
  readonly entries: readonly ReloadEntry[];
}

export interface LiveConfigView extends ConfigView {
  readonly lastReload: (ReloadResult & { readonly time: string }) | null;
}

/** A reload reads these files, which options name, besides the configuration file. */
export interface ReloadedFiles {
  /**
   * Reads the files and changes nothing yet; `entry` says what is new, undefined when nothing is.
   * @throws EngineError invalid when they cannot be used: then nothing of the reload takes effect.
   */
  reread(): RereadFiles;
}

export interface RereadFiles {
  readonly entry: ReloadEntry | undefined;
  readonly apply: () => void;
}

export class LiveConfig {
  #loaded: LoadedConfig;
  #lastReload: LiveConfigView['lastReload'] = null;
  readonly #files: ReloadedFiles[] = [];
  readonly #listeners: ((result: ReloadResult) => void)[] = [];
  /** Reloads take place one after another; this is the end of the last one. */
  #lastTurn: Promise<unknown> = Promise.resolve();

  constructor(loaded: LoadedConfig) {
    this.#loaded = loaded;
  }

  /** These values do not change by a reload. */
  get fixed(): FixedConfig {
    return this.#loaded.config;
  }

  /** These values may change: read them anew at each use. */
  get current(): ReloadableConfig {
    return this.#loaded.config;
  }

  /** Returns all values of this moment, to be shown to clients. */
  get whole(): Config {
    return this.#loaded.config;
  }

  /** These notices are about allowed settings in the configuration in effect that operators should know of. */
  get notices(): readonly Notice[] {
    return this.#loaded.notices;
  }

  view(): LiveConfigView {
    return { ...configView(this.#loaded), lastReload: this.#lastReload };
  }

  /**
   * Reads the file again. All of it takes effect or, when anything is wrong or `dryRun` is set, nothing. Never throws
   * for what the file says.
   */
  reload(options: { readonly dryRun: boolean }): Promise<ReloadResult> {
    const turn = this.#lastTurn.then(() => this.#reload(options));
    this.#lastTurn = turn.catch(() => undefined);
    return turn;
  }

  async #reload({ dryRun }: { readonly dryRun: boolean }): Promise<ReloadResult> {
    const { loaded, files, ...result } = await this.#prepare();
    if (dryRun) return result;
    this.#loaded = loaded;
    for (const { apply } of files) apply();
    this.#lastReload = { time: new Date().toISOString(), ...result };
    for (const listener of this.#listeners) listener(result);
    return result;
  }

  /** From now on a reload reads these too. */
  alsoReload(files: ReloadedFiles): void {
    this.#files.push(files);
  }

  async #prepare(): Promise<ReloadReport & { readonly files: readonly RereadFiles[] }> {
    const report = await reloadConfig(this.#loaded);
    if (!report.ok) return { ...report, files: [] };
    try {
      const files = this.#files.map((each) => each.reread());
      return { ...report, entries: [...report.entries, ...files.flatMap(({ entry }) => entry ?? [])], files };
    } catch (error) {
      if (!isEngineError(error)) throw error;
      const { message, details } = error;
      const key = typeof details['option'] === 'string' ? details['option'] : '';
      return { ok: false, message, entries: [{ key, verdict: 'invalid', message }], loaded: this.#loaded, files: [] };
    }
  }

  /** Registers a listener that is called after each reload that was no dry run, also after one that failed. */
  onReload(listener: (result: ReloadResult) => void): void {
    this.#listeners.push(listener);
  }

  /** Returns each reloadable setting by its key, as text: lists and maps are JSON. */
  reloadableSettings(): Readonly<Record<string, string>> {
    return Object.fromEntries(
      OPTION_LIST.filter(({ reloadable }) => reloadable).map(({ name, title }) => {
        const value = this.#loaded.settings.get(name)?.value;
        return [title, typeof value === 'string' ? value : JSON.stringify(value)];
      }),
    );
  }
}
