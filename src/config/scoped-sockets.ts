/** The type of `sockets`: more sockets to listen on, each of which serves only what its rules allow. */
import { invalid } from '../errors/engine-error.js';
import { parseHost } from './hosts.js';
import { isObject, type ValueType } from './value-types.js';

export interface ScopedSocket {
  readonly host: string;
  /** Group of the socket file; '': the group of the daemon's own socket. */
  readonly group: string;
  /** Rules such as `GET /containers/*`. Whatever no rule names is denied. */
  readonly allow: readonly string[];
}

/** One rule, split into its parts. */
export interface AccessRule {
  /** HTTP method; `*` for any. */
  readonly method: string;
  /** Path without version prefix, in which `*` stands for one or more characters of any kind. */
  readonly path: string;
}

const RULE = /^(GET|HEAD|POST|PUT|DELETE|\*) (\/\S*)$/;

/** Splits a rule into its parts. @throws EngineError invalid for a rule that could never match, or is not one. */
export function parseAccessRule(text: string): AccessRule {
  const [, method, path] = RULE.exec(text) ?? [];
  if (method === undefined || path === undefined)
    throw invalid(
      `invalid rule ${JSON.stringify(text)}: must be a method (GET, HEAD, POST, PUT, DELETE or *), ` +
        'a space and a path such as /containers/*',
    );
  if (/^\/v\d/.test(path))
    throw invalid(`invalid rule ${JSON.stringify(text)}: the path is compared without its version prefix`);
  if (/[?#%]/.test(path))
    throw invalid(`invalid rule ${JSON.stringify(text)}: the path is compared decoded and without its query`);
  if (/\/\/|\/\.{1,2}(\/|$)/.test(path))
    throw invalid(`invalid rule ${JSON.stringify(text)}: no path that is served has empty or dot segments`);
  return { method, path };
}

export const scopedSockets: ValueType<readonly ScopedSocket[]> = {
  label: '',
  repeatable: false,
  schema: {
    type: 'array',
    items: {
      type: 'object',
      properties: {
        host: { type: 'string' },
        group: { type: 'string' },
        allow: { type: 'array', items: { type: 'string', pattern: RULE.source } },
      },
      required: ['host', 'allow'],
      additionalProperties: false,
    },
  },
  fromFlag: () => {
    throw invalid('can be set in the configuration file only');
  },
  fromFile: (value) => {
    if (!Array.isArray(value)) throw invalid('must be an array of objects with host, group and allow');
    const sockets = value.map(readSocket);
    const twice = sockets.find(({ host }, index) => sockets.findIndex((other) => other.host === host) !== index);
    if (twice) throw invalid(`host ${JSON.stringify(twice.host)} is listed twice`);
    return sockets;
  },
};

function readSocket(value: unknown): ScopedSocket {
  if (!isObject(value)) throw invalid('must be an array of objects with host, group and allow');
  const { host, group = '', allow, ...rest } = value;
  const unknown = Object.keys(rest);
  if (unknown.length > 0) throw invalid(`unknown member ${unknown.map((name) => JSON.stringify(name)).join(', ')}`);
  if (typeof host !== 'string' || host.trim() === '')
    throw invalid('host must be an address such as unix:///run/engine-metrics.sock');
  const { kind } = parseHost(host.trim(), { tls: false });
  if (kind === 'fd') throw invalid(`host ${JSON.stringify(host)}: must be unix:// or tcp://`);
  if (typeof group !== 'string') throw invalid('group must be a string');
  if (group !== '' && kind !== 'unix') throw invalid(`host ${JSON.stringify(host)}: only unix sockets have a group`);
  if (!Array.isArray(allow) || !allow.every((rule) => typeof rule === 'string'))
    throw invalid('allow must be an array of rules such as "GET /containers/*"');
  for (const rule of allow) parseAccessRule(rule);
  return { host: host.trim(), group, allow };
}
