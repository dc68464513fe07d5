/** The settings of a managed plugin: what its configuration lets operators change, and how they say it. */
import { internal, invalid } from '../../errors/engine-error.js';
import type { PluginConfig, PluginSettings } from '../../ports/managed-plugin.js';

/** Returns the settings that a configuration begins with. */
export function initialSettings({ Mounts, Env, Args, Linux }: PluginConfig): PluginSettings {
  return {
    Mounts: Mounts ?? [],
    Env: (Env ?? []).flatMap(({ Name, Value }) => (Value === null ? [] : [`${Name}=${Value}`])),
    Args: Args.Value ?? [],
    Devices: Linux.Devices ?? [],
  };
}

/** `NAME=VALUE` or `NAME.FIELD=VALUE`. */
interface Change {
  readonly name: string;
  readonly field: string;
  readonly value: string;
}

/**
 * Applies changes, all or none. @throws EngineError internal in the known engine's words for a name that the
 * configuration does not have or does not let change; invalid for what has no name.
 */
export function changeSettings(
  config: PluginConfig,
  settings: PluginSettings,
  words: readonly string[],
): PluginSettings {
  return words.map(parseChange).reduce((before, change) => applyChange(config, before, change), settings);
}

/** Returns the changes that make `settings` of what the configuration begins with. */
export function changesOf(config: PluginConfig, settings: PluginSettings): string[] {
  const initial = initialSettings(config);
  const env = settings.Env.filter((entry) => !initial.Env.includes(entry));
  const mounts = settings.Mounts.filter(({ Source }, at) => Source !== initial.Mounts[at]?.Source);
  const devices = settings.Devices.filter(({ Path }, at) => Path !== initial.Devices[at]?.Path);
  const args = settings.Args.join(' ');
  return [
    ...env,
    ...mounts.map(({ Name, Source }) => `${Name}.source=${Source ?? ''}`),
    ...devices.map(({ Name, Path }) => `${Name}.path=${Path ?? ''}`),
    ...(args === initial.Args.join(' ') ? [] : [`${config.Args.Name}=${args}`]),
  ];
}

function parseChange(word: string): Change {
  const equals = word.indexOf('=');
  if (equals === 0 || word === '')
    throw invalid('invalid format, must be <argument>[.<field>][=<value>]', { code: 'PLUGIN_SETTING' });
  const key = equals < 0 ? word : word.slice(0, equals);
  const value = equals < 0 ? '' : word.slice(equals + 1);
  if (value.includes('\0')) throw invalid(`setting ${JSON.stringify(key)} contains a NUL character`);
  const point = key.lastIndexOf('.');
  return point > 0
    ? { name: key.slice(0, point), field: key.slice(point + 1), value }
    : { name: key, field: '', value };
}

function applyChange(config: PluginConfig, settings: PluginSettings, change: Change): PluginSettings {
  const { name, value } = change;
  const isNamed = ({ Name }: { readonly Name: string }): boolean => Name === name;
  const env = (config.Env ?? []).find(isNamed);
  if (env) {
    requireSettable(change, 'value', env.Settable);
    const [before, after] = [settings.Env, `${name}=${value}`];
    const at = before.findIndex((entry) => entry.startsWith(`${name}=`));
    return { ...settings, Env: at < 0 ? [...before, after] : before.with(at, after) };
  }
  const mount = (config.Mounts ?? []).find(isNamed);
  if (mount) {
    requireSettable(change, 'source', mount.Settable);
    if (mount.Source === null) throw refused('plugin config has no mount source');
    return { ...settings, Mounts: settings.Mounts.map((one) => (isNamed(one) ? { ...one, Source: value } : one)) };
  }
  const device = (config.Linux.Devices ?? []).find(isNamed);
  if (device) {
    requireSettable(change, 'path', device.Settable);
    if (device.Path === null) throw refused('plugin config has no device path');
    return { ...settings, Devices: settings.Devices.map((one) => (isNamed(one) ? { ...one, Path: value } : one)) };
  }
  if (config.Args.Name !== '' && isNamed(config.Args)) {
    requireSettable(change, 'value', config.Args.Settable);
    return { ...settings, Args: value.split(' ') };
  }
  throw refused(`setting ${JSON.stringify(name)} not found in the plugin configuration`);
}

/** Each kind has one field that can be changed, which need not be named. */
function requireSettable({ name, field }: Change, only: string, settable: readonly string[] | null): void {
  if ((field === '' || field === only) && settable?.includes(only) === true) return;
  throw refused(`${JSON.stringify(field === '' ? name : `${name}.${field}`)} is not settable`);
}

function refused(message: string): Error {
  return internal(message, { code: 'PLUGIN_SETTING' });
}
