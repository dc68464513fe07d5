/** A TCP relay in front of a registry that cuts connections, and counts what goes through. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface CuttingProxy {
  /** `127.0.0.1:port`. */
  readonly host: string;
  readonly url: string;
  /** Bytes that came from the registry. */
  readonly downBytes: number;
  readonly cuts: number;
  /** Connections so far. */
  readonly connections: number;
  stop(): Promise<void>;
}

export interface CuttingOptions {
  /**
   * A connection is ended when so many bytes went to the client (`down`) on it, reset when so many to the registry
   * (`up`).
   */
  readonly down?: number;
  readonly up?: number;
  /** Cuts in all; then connections live. */
  readonly maxCuts?: number;
  /** What each connection lets through to the client. */
  readonly downPerSecond?: number;
}

export async function startCuttingProxy(
  registry: string,
  { down = Infinity, up = Infinity, maxCuts = Infinity, downPerSecond = Infinity }: CuttingOptions,
): Promise<CuttingProxy> {
  const [host = '', port = ''] = registry.split(':');
  const sockets = new Set<Socket>();
  const totals = { down: 0, cuts: 0, connections: 0 };
  const server = createServer((client) => {
    const upstream = connect(Number(port), host);
    const both = [client, upstream];
    totals.connections++;
    let [sentDown, sentUp] = [0, 0];
    for (const socket of both) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => {
        sockets.delete(socket);
        if (socket === client) upstream.destroy();
        else client.end();
      });
    }
    const begin = performance.now();
    /** Holds the registry back until the client may have what it was sent. */
    const slowDown = (): void => {
      const aheadMs = (sentDown / downPerSecond) * 1000 - (performance.now() - begin);
      if (aheadMs < 1) return;
      upstream.pause();
      setTimeout(() => upstream.resume(), aheadMs);
    };
    const relay = (from: Socket, to: Socket, chunk: Buffer): void => {
      if (!to.write(chunk)) {
        from.pause();
        to.once('drain', () => from.resume());
      }
    };
    upstream.on('data', (chunk) => {
      if (client.destroyed) return;
      const passed = totals.cuts < maxCuts ? chunk.subarray(0, Math.max(0, down - sentDown)) : chunk;
      sentDown += passed.length;
      totals.down += passed.length;
      relay(upstream, client, passed);
      slowDown();
      if (passed.length < chunk.length) {
        totals.cuts++;
        // What was passed on arrives: only so is it counted rightly.
        client.end();
        upstream.destroy();
      }
    });
    client.on('data', (chunk) => {
      sentUp += chunk.length;
      if (sentUp > up && totals.cuts < maxCuts) {
        totals.cuts++;
        client.resetAndDestroy();
        upstream.destroy();
      } else relay(client, upstream, chunk);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    host: address,
    url: `http://${address}`,
    get downBytes() {
      return totals.down;
    },
    get cuts() {
      return totals.cuts;
    },
    get connections() {
      return totals.connections;
    },
    stop: async () => {
      for (const socket of sockets) socket.destroy();
      const closed = once(server, 'close');
      server.close();
      await closed;
    },
  };
}
