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
  /** Each connection lets this much through to the client. One that was idle makes up for nothing. */
  readonly downPerSecond?: number;
}

interface Totals {
  down: number;
  cuts: number;
  connections: number;
}

export async function startCuttingProxy(registry: string, options: CuttingOptions): Promise<CuttingProxy> {
  const limits = { down: Infinity, up: Infinity, maxCuts: Infinity, downPerSecond: Infinity, ...options };
  const [host = '', port = ''] = registry.split(':');
  const sockets = new Set<Socket>();
  const totals: Totals = { down: 0, cuts: 0, connections: 0 };
  const server = createServer((client) => {
    const upstream = connect(Number(port), host);
    totals.connections++;
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    }
    relayAndCut(client, upstream, limits, totals);
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

/** Relays one connection, until its share of the limits is used up. */
function relayAndCut(client: Socket, upstream: Socket, limits: Required<CuttingOptions>, totals: Totals): void {
  let [sentDown, sentUp] = [0, 0];
  for (const socket of [client, upstream]) socket.on('error', () => undefined);
  client.once('close', () => upstream.destroy());
  upstream.once('close', () => client.end());
  let busyUntil = 0;
  /** Holds the registry back until the client may have what it was sent. */
  const slowDown = (bytes: number): void => {
    const now = performance.now();
    busyUntil = Math.max(busyUntil, now) + (bytes / limits.downPerSecond) * 1000;
    const aheadMs = busyUntil - now;
    if (aheadMs < 1) return;
    upstream.pause();
    setTimeout(() => upstream.resume(), aheadMs);
  };
  upstream.on('data', (chunk: Buffer) => {
    if (client.destroyed) return;
    const passed = totals.cuts < limits.maxCuts ? chunk.subarray(0, Math.max(0, limits.down - sentDown)) : chunk;
    sentDown += passed.length;
    totals.down += passed.length;
    relay(upstream, client, passed);
    slowDown(passed.length);
    if (passed.length < chunk.length) {
      totals.cuts++;
      // Bytes that were passed on arrive: only so are they counted rightly.
      client.end();
      upstream.destroy();
    }
  });
  client.on('data', (chunk: Buffer) => {
    sentUp += chunk.length;
    if (sentUp > limits.up && totals.cuts < limits.maxCuts) {
      totals.cuts++;
      client.resetAndDestroy();
      upstream.destroy();
    } else relay(client, upstream, chunk);
  });
}

function relay(from: Socket, to: Socket, chunk: Buffer): void {
  if (to.write(chunk)) return;
  from.pause();
  to.once('drain', () => from.resume());
}
