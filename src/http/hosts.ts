/** `--host` values as listeners: `unix://path`, `tcp://[host][:port]` and the shorthands of the specification. */
import { readFile } from 'node:fs/promises';
import { invalid, notFound } from '../errors/engine-error.js';
import type { ListenSpec } from './listener.js';

const PLAIN_PORT = 2375;

/** Throws invalid with the value for anything that is no address. */
export function parseHost(value: string, gid: number | undefined): ListenSpec {
  if (value.startsWith('unix://') || value.startsWith('/')) {
    const path = value.replace(/^unix:\/\//, '');
    if (!path.startsWith('/')) throw invalid(`invalid host ${value}: the path of a unix socket must be absolute`);
    return { kind: 'unix', path, ...(gid === undefined ? {} : { gid }) };
  }
  const match = /^(?:tcp:\/\/)?(\[[0-9a-fA-F:]+\]|[^:/[\]]*)(?::(\d*))?$/.exec(value);
  if (!match || (value.includes('://') && !value.startsWith('tcp://'))) throw invalid(`invalid host ${value}: use unix://PATH, tcp://HOST:PORT or fd://`);
  const port = match[2] === undefined || match[2] === '' ? PLAIN_PORT : Number(match[2]);
  if (port > 65535) throw invalid(`invalid host ${value}: port ${port} is out of range`);
  return { kind: 'tcp', host: (match[1] || '127.0.0.1').replace(/^\[(.*)\]$/, '$1'), port };
}

/** The id of a group by name or number. Throws not-found. */
export async function groupId(name: string): Promise<number> {
  if (/^\d+$/.test(name)) return Number(name);
  for (const line of (await readFile('/etc/group', 'utf8')).split('\n')) {
    const [group, , id] = line.split(':');
    if (group === name) return Number(id);
  }
  throw notFound(`group ${name} not found`);
}
