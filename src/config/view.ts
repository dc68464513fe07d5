/** The effective configuration for `GET /engine/config`. */
import { OPTION_LIST } from './options.js';
import type { LoadedConfig, Notice, Source } from './settings.js';
import { maskCredentials } from './show.js';

export interface ConfigView {
  readonly configFile: string;
  readonly settings: Readonly<Record<string, SettingView>>;
  /** Notices about settings that are allowed but should be known, such as those that have no effect here. */
  readonly notices: readonly Notice[];
}

export interface SettingView {
  readonly value: unknown;
  readonly source: Source;
  /** True when a reload changes it; otherwise only a restart does. */
  readonly reloadable: boolean;
  /** Place in the file as `line:column`. */
  readonly position?: string;
}

/** Returns every option by its key in the file (or its flag or variable), with masked credentials. */
export function configView({ config, settings, notices }: LoadedConfig): ConfigView {
  const entries = OPTION_LIST.flatMap((option) => {
    const setting = settings.get(option.name);
    if (!setting) return [];
    const { value, source, position } = setting;
    const shown = option.credentials && typeof value === 'string' ? maskCredentials(value) : (value ?? null);
    const view: SettingView = {
      value: shown,
      source,
      reloadable: option.reloadable === true,
      ...(position ? { position: `${position.line}:${position.column}` } : {}),
    };
    return [[option.title, view] as const];
  });
  return { configFile: config.configFile, settings: Object.fromEntries(entries), notices };
}
