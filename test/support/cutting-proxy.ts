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
  stop(): Promise<void>;
}

export interface CuttingOptions {
  /** A connection is reset when so many bytes went to the client (`down`) or to the registry (`up`) on it. */
  readonly down?: number;
  readonly up?: number;
  /** Cuts in all; then connections live. */
  readonly maxCuts?: number;
}

export async function startCuttingProxy(registry: string, { down = Infinity, up = Infinity, maxCuts = Infinity }: CuttingOptions): Promise<CuttingProxy> {
  const [host = '', port = ''] = registry.split(':');
  const sockets = new Set<Socket>();
  const totals = { down: 0, cuts: 0 };
  const server = createServer((client) => {
    const upstream = connect(Number(port), host);
    const both = [client, upstream];
    let [sentDown, sentUp] = [0, 0];
    for (const socket of both) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => {
        sockets.delete(socket);
        for (const other of both) other.destroy();
      });
    }
    const cut = (): void => {
      totals.cuts++;
      client.resetAndDestroy();
      upstream.destroy();
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
      // A moment for what was passed on to arrive before the reset.
      if (passed.length < chunk.length) {
        upstream.pause();
        setTimeout(cut, 5);
      }
    });
    client.on('data', (chunk) => {
      sentUp += chunk.length;
      if (sentUp > up && totals.cuts < maxCuts) cut();
      else relay(client, upstream, chunk);
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
    stop: async () => {
      for (const socket of sockets) socket.destroy();
      const closed = once(server, 'close');
      server.close();
      await closed;
    },
  };
}
