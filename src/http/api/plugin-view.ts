/** Managed plugins as the Engine API writes them, and what requests say about them. */
import type { PluginConfig, PluginPrivilege, PluginRecord, PluginType } from '../../ports/managed-plugin.js';
import { list, object, string } from './decode.js';
import type { Filters } from './filters.js';

export function pluginView({ id, name, enabled, reference, config, settings }: PluginRecord): object {
  return {
    Config: configView(config),
    Enabled: enabled,
    Id: id,
    Name: name,
    ...(reference === '' ? {} : { PluginReference: reference }),
    Settings: settings,
  };
}

function configView({ Interface, User, WorkingDir, ...config }: PluginConfig): object {
  const { Types, Socket, ProtocolScheme } = Interface;
  return {
    ...config,
    WorkDir: WorkingDir,
    Interface: {
      ...(ProtocolScheme === '' ? {} : { ProtocolScheme }),
      Socket,
      Types: Types.map(typeText),
    },
    User: { ...(User.GID === 0 ? {} : { GID: User.GID }), ...(User.UID === 0 ? {} : { UID: User.UID }) },
  };
}

function typeText({ prefix, capability, version }: PluginType): string {
  return `${prefix}.${capability}/${version}`;
}

/**
 * Returns what tells whether a list has a plugin; a capability that is asked for must be the only one. @throws
 * EngineError invalid, also when there is no plugin to list.
 */
export function pluginFilter(filters: Filters): (record: PluginRecord) => boolean {
  const wanted = filters.flag('enabled');
  const capabilities = filters.get('capability');
  return ({ enabled, config }) =>
    (wanted === undefined || wanted === enabled) &&
    (capabilities.length === 0 || config.Interface.Types.every(({ capability }) => capabilities.includes(capability)));
}

const privileges = list(object({ Name: string(), Description: string(), Value: list(string()) }));

/** @throws EngineError invalid that names the field. */
export function decodePrivileges(value: unknown): PluginPrivilege[] {
  return value === undefined || value === null ? [] : privileges.decode(value, '');
}

const words = list(string());

/** Decodes the body of a change of settings: a list of `NAME=VALUE`. @throws EngineError invalid. */
export function decodeWords(value: unknown): string[] {
  return value === undefined || value === null ? [] : words.decode(value, '');
}
