/** A real registry behind a gate that wants bearer tokens, with a token server that knows one user, on one port. */
import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { startRegistry } from './registry.js';

export interface TokenRegistry {
  /** `127.0.0.1:port`. */
  readonly host: string;
  /** The registry behind the gate. */
  readonly openUrl: string;
  /** Scopes of the tokens that were issued: of each the list that was asked for. */
  readonly issued: readonly (readonly string[])[];
  stop(): Promise<void>;
}

export const USER = { username: 'me', password: 'secret' } as const;

/** Actions that a request needs on the repository it names. */
function needed(method: string, path: string): string | undefined {
  const repository = /^\/v2\/(.+?)\/(?:blobs|manifests|tags)\//.exec(path)?.[1];
  return repository === undefined
    ? undefined
    : `repository:${repository}:${method === 'GET' || method === 'HEAD' ? 'pull' : 'pull,push'}`;
}

/** With the actions in their alphabetical order. */
function normalScope(scope: string): string {
  const [, name = '', actions = ''] = /^(.*):([a-z,*]*)$/.exec(scope) ?? [];
  return `${name}:${actions.split(',').sort().join(',')}`;
}

export async function startTokenRegistry(): Promise<TokenRegistry> {
  const registry = await startRegistry();
  const issued: string[][] = [];
  const tokens = new Map<string, readonly string[]>();
  const server = createServer((incoming, response) => {
    const { method = 'GET', url = '/' } = incoming;
    const { pathname, searchParams } = new URL(url, 'http://x');
    const json = (status: number, body: unknown, headers: Record<string, string> = {}): void =>
      void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
    if (pathname === '/token') {
      const expected = `Basic ${Buffer.from(`${USER.username}:${USER.password}`).toString('base64')}`;
      if (incoming.headers.authorization !== expected) return json(401, { details: 'incorrect username or password' });
      const scopes = searchParams.getAll('scope').map(normalScope);
      const token = `token-${issued.length}`;
      issued.push(scopes);
      tokens.set(token, scopes);
      return json(200, {
        token,
        ...(searchParams.get('offline_token') === 'true' ? { refresh_token: 'refresh-me' } : {}),
      });
    }
    const scope = needed(method, pathname);
    const held = tokens.get(incoming.headers.authorization?.replace('Bearer ', '') ?? '');
    const allows = held !== undefined && (scope === undefined || held.some((one) => one.startsWith(scope)));
    if (!allows) {
      const challenge =
        `Bearer realm="http://${incoming.headers.host}/token",service="gate"` +
        (scope === undefined ? '' : `,scope="${scope}"`) +
        (held ? ',error="insufficient_scope"' : '');
      return json(
        401,
        { errors: [{ code: 'UNAUTHORIZED', message: 'authentication required' }] },
        { 'www-authenticate': challenge },
      );
    }
    const headers = { ...incoming.headers, connection: 'close' };
    const inner = httpRequest(`${registry.url}${url}`, { method, headers, agent: false }, (reply) => {
      response.writeHead(reply.statusCode ?? 500, reply.headers);
      reply.pipe(response);
    });
    inner.on('error', () => response.destroy());
    incoming.pipe(inner);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    openUrl: registry.url,
    issued,
    stop: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
      await registry.stop();
    },
  };
}
