/** Reads the `config.json` of a managed plugin, as tolerantly as Go's decoder: names in any case, null for absence. */
import { invalid } from '../../errors/engine-error.js';
import type { PluginConfig, PluginDevice, PluginEnv, PluginMount, PluginType } from '../../ports/managed-plugin.js';
import { parseForeignJson } from '../../text/foreign-json.js';
import { memberOf } from '../plugin-client.js';

/** A configuration has tens of members; each list of it may have this many. */
const MAX_ITEMS = 1000;
/** A name of a socket is a file name; with its directory it must fit into an address (unix(7)). */
const SOCKET = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;

/** @throws EngineError invalid `failed to parse config: …`, which names the member. */
export function parsePluginConfig(bytes: Buffer): PluginConfig {
  let value: unknown;
  try {
    value = parseForeignJson(bytes);
  } catch (cause) {
    throw invalid(`failed to parse config: ${(cause as Error).message}`, { code: 'PLUGIN_CONFIG', cause });
  }
  if (!isObject(value)) throw malformed('config.json', 'an object');
  const config = configOf(value);
  check(config);
  return config;
}

function configOf(value: object): PluginConfig {
  const [face, user, network, linux, args] = ['interface', 'user', 'network', 'linux', 'args'].map((name) =>
    objectAt(value, name),
  );
  const dockerVersion = textAt(value, 'dockerversion');
  const rootfs = memberOf(value, 'rootfs');
  return {
    ...(dockerVersion === '' ? {} : { DockerVersion: dockerVersion }),
    Description: textAt(value, 'description'),
    Documentation: textAt(value, 'documentation'),
    Interface: {
      Types: (textsAt(face, 'types') ?? []).map(parsePluginType),
      Socket: textAt(face, 'socket'),
      ProtocolScheme: textAt(face, 'protocolscheme'),
    },
    Entrypoint: textsAt(value, 'entrypoint'),
    WorkingDir: textAt(value, 'workdir'),
    User: { UID: idAt(user, 'uid'), GID: idAt(user, 'gid') },
    Network: { Type: textAt(network, 'type') },
    Linux: {
      Capabilities: textsAt(linux, 'capabilities'),
      AllowAllDevices: flagAt(linux, 'allowalldevices'),
      Devices: listAt(linux, 'devices', deviceOf),
    },
    PropagatedMount: textAt(value, 'propagatedmount'),
    IpcHost: flagAt(value, 'ipchost'),
    PidHost: flagAt(value, 'pidhost'),
    Mounts: listAt(value, 'mounts', mountOf),
    Env: listAt(value, 'env', envOf),
    Args: { ...namedOf(args), Value: textsAt(args, 'value') },
    ...(isObject(rootfs)
      ? { rootfs: { type: textAt(rootfs, 'type'), diff_ids: textsAt(rootfs, 'diff_ids') ?? [] } }
      : {}),
  };
}

/** Reads `docker.volumedriver/1.0`: the prefix ends at the last point before the slash. */
export function parsePluginType(text: string): PluginType {
  const [kind = '', ...version] = text.split('/');
  const point = kind.lastIndexOf('.');
  if (point < 0) throw invalid(`failed to parse config: ${JSON.stringify(text)} is not a plugin interface type`);
  return { prefix: kind.slice(0, point), capability: kind.slice(point + 1), version: version.join('/') };
}

/** Refuses what could not run, or would lead out of the plugin's own places. */
function check({ Interface: { Socket, Types }, Entrypoint, PropagatedMount, WorkingDir }: PluginConfig): void {
  if (!SOCKET.test(Socket)) throw malformed('interface.socket', 'the name of a socket, without a directory');
  if (Types.length === 0) throw malformed('interface.types', 'at least one type');
  if (Entrypoint === null || Entrypoint.length === 0) throw malformed('entrypoint', 'at least the program');
  for (const [name, path] of [
    ['propagatedMount', PropagatedMount],
    ['workdir', WorkingDir],
  ] as const)
    if (path !== '' && !path.startsWith('/')) throw malformed(name, 'an absolute path');
}

function namedOf(value: unknown): { readonly Name: string; readonly Description: string; readonly Settable: Texts } {
  return {
    Name: textAt(value, 'name'),
    Description: textAt(value, 'description'),
    Settable: textsAt(value, 'settable'),
  };
}

function mountOf(value: object): PluginMount {
  return {
    ...namedOf(value),
    Source: textOrNullAt(value, 'source'),
    Destination: textAt(value, 'destination'),
    Type: textAt(value, 'type'),
    Options: textsAt(value, 'options'),
  };
}

function deviceOf(value: object): PluginDevice {
  return { ...namedOf(value), Path: textOrNullAt(value, 'path') };
}

function envOf(value: object): PluginEnv {
  return { ...namedOf(value), Value: textOrNullAt(value, 'value') };
}

type Texts = readonly string[] | null;

function textOrNullAt(value: unknown, name: string): string | null {
  const member = memberOf(value, name) ?? null;
  if (member !== null && typeof member !== 'string') throw malformed(name, 'a text');
  if (member?.includes('\0') === true) throw malformed(name, 'a text without NUL characters');
  return member;
}

function textAt(value: unknown, name: string): string {
  return textOrNullAt(value, name) ?? '';
}

function flagAt(value: unknown, name: string): boolean {
  const member = memberOf(value, name) ?? false;
  if (typeof member !== 'boolean') throw malformed(name, 'true or false');
  return member;
}

function idAt(value: unknown, name: string): number {
  const member = memberOf(value, name) ?? 0;
  if (typeof member !== 'number' || !Number.isInteger(member) || member < 0 || member >= 2 ** 32)
    throw malformed(name, 'a number of a user or group');
  return member;
}

function objectAt(value: unknown, name: string): object {
  const member = memberOf(value, name) ?? {};
  if (!isObject(member)) throw malformed(name, 'an object');
  return member;
}

function listAt<T>(value: unknown, name: string, item: (value: object) => T): readonly T[] | null {
  const member = memberOf(value, name) ?? null;
  if (member === null) return null;
  if (!Array.isArray(member) || member.length > MAX_ITEMS || !member.every(isObject))
    throw malformed(name, `a list of up to ${MAX_ITEMS} objects`);
  return member.map(item);
}

function textsAt(value: unknown, name: string): Texts {
  const member = memberOf(value, name) ?? null;
  if (member === null) return null;
  const isText = (one: unknown): one is string => typeof one === 'string' && !one.includes('\0');
  if (!Array.isArray(member) || member.length > MAX_ITEMS || !member.every(isText))
    throw malformed(name, `a list of up to ${MAX_ITEMS} texts`);
  return member;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function malformed(name: string, wanted: string): Error {
  return invalid(`failed to parse config: ${name} must be ${wanted}`, { code: 'PLUGIN_CONFIG' });
}
