/** Addresses that the daemon listens on: `unix://`, `tcp://`, `fd://` and their short forms. */
import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { invalid } from '../errors/engine-error.js';
import { withoutTrailing } from '../text/trailing.js';

export type ListenAddress =
  | { readonly kind: 'unix'; readonly path: string }
  | {
      readonly kind: 'tcp';
      readonly host: string;
      readonly port: number;
      /** Text before every request path; '' or `/…` without a slash at the end. */
      readonly prefix: string;
    }
  /** Sockets of the service manager: all of them, or those with this number or name. */
  | { readonly kind: 'fd'; readonly select: string };

/** Returns whether only this machine can reach an address. Names other than `localhost` may stand for anything. */
export function isLoopbackHost(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.[\d.]+$/.test(host);
}

const PLAIN_PORT = 2375;
const TLS_PORT = 2376;

export const DEFAULT_HOST = 'unix:///var/run/engine.sock';

/**
 * Reads one address. `tls` decides the default port. `<host>:<port>`, `<host>:` and `:<port>` mean tcp.
 * @throws EngineError invalid naming the address.
 */
export function parseHost(given: string, options: { readonly tls: boolean }): ListenAddress {
  const text = given.trim();
  const match = /^([a-z]+):\/\/(.*)$/.exec(text);
  if (!match) return parseTcp(text, given, options);
  const [, scheme, rest = ''] = match;
  switch (scheme) {
    case 'unix': {
      const path = rest === '' ? '/var/run/engine.sock' : rest;
      if (!isAbsolute(path)) throw invalid(`invalid bind address (${given}): the socket path must be absolute`);
      return { kind: 'unix', path };
    }
    case 'tcp':
      return parseTcp(rest, given, options);
    case 'fd':
      return { kind: 'fd', select: rest === '*' ? '' : rest };
    case 'npipe':
      throw invalid(`invalid bind address (${given}): named pipes are only available on Windows`);
    default:
      throw invalid(`invalid bind address format: ${given}`);
  }
}

function parseTcp(text: string, given: string, { tls }: { readonly tls: boolean }): ListenAddress {
  const slash = text.indexOf('/');
  const [authority, path] = slash === -1 ? [text, ''] : [text.slice(0, slash), text.slice(slash)];
  // A name without a colon would be a host, but is more often a path or a typing mistake; with tcp:// it is clear.
  if (text === given.trim() && !authority.includes(':')) throw invalid(`invalid bind address format: ${given}`);
  const match = /^(\[[0-9a-fA-F:.]+(?:%[\w.-]+)?\]|[^:[\]]*)(?::(\d*))?$/.exec(authority);
  if (!match) throw invalid(`invalid bind address (${given}): not <host>:<port>`);
  const [, rawHost = '', rawPort = ''] = match;
  const host = rawHost.replace(/^\[(.*)\]$/, '$1') || '127.0.0.1';
  const port = rawPort === '' ? (tls ? TLS_PORT : PLAIN_PORT) : Number(rawPort);
  if (port > 65_535) throw invalid(`invalid bind address (${given}): invalid port ${rawPort}`);
  if (isIP(host) === 0 && !/^[a-zA-Z0-9]([a-zA-Z0-9._-]*[a-zA-Z0-9])?$/.test(host))
    throw invalid(`invalid bind address (${given}): invalid host ${host}`);
  if (!/^(\/[\w.~-]+)*\/*$/.test(path) || /\/\.{1,2}(\/|$)/.test(path))
    throw invalid(`invalid bind address (${given}): invalid path ${path}`);
  return { kind: 'tcp', host, port, prefix: withoutTrailing(path, '/') };
}
