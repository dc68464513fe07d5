/** Stands before a registry: a test sees what comes, and may answer in its place or hold it. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestRegistry } from './registry.js';

/** Sees each request first. `forward` hands it on, once; a request that is not taken over is handed on at once. */
export type Guard = (incoming: IncomingMessage, response: ServerResponse, forward: () => void) => 'taken' | 'passes';

export interface RegistryGate {
  /** `127.0.0.1:port`. */
  readonly host: string;
  guard: Guard;
  stop(): Promise<void>;
}

export async function startRegistryGate(registry: Pick<TestRegistry, 'host' | 'url'>): Promise<RegistryGate> {
  const server = createServer((incoming, response) => {
    let isForwarded = false;
    const forward = (): void => {
      if (isForwarded) return;
      isForwarded = true;
      const headers = { ...incoming.headers, host: registry.host };
      const { method = 'GET', url = '/' } = incoming;
      const inner = httpRequest(`${registry.url}${url}`, { method, headers, agent: false }, (reply) => {
        response.writeHead(reply.statusCode ?? 500, reply.headers);
        reply.pipe(response);
      });
      inner.on('error', () => response.destroy());
      incoming.pipe(inner);
    };
    if (gate.guard(incoming, response, forward) === 'passes') forward();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const gate: RegistryGate = {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    guard: () => 'passes',
    stop: async () => {
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
  return gate;
}
