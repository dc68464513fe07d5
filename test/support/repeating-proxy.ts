/**
 * A proxy that loses some of the requests or their replies, and sends these requests again, as a client does that
 * cannot know what became of them.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { call, type Reply } from './http.js';

export interface RepeatingProxy {
  readonly socketPath: string;
  /** Requests that were sent more than once. */
  readonly repeated: () => number;
  close(): Promise<void>;
}

export interface ProxyOptions {
  readonly to: string;
  readonly socketPath: string;
  /** Returns a number in [0, limit). */
  readonly random: (limit: number) => number;
  /** So many of 100 requests are lost at first. */
  readonly lossPercent: number;
  /** A connection is cut so many milliseconds after the request at most. */
  readonly cutMs: number;
}

/** Starts the proxy. While the daemon is away, requests are sent again until it is back. */
export async function startRepeatingProxy(options: ProxyOptions): Promise<RepeatingProxy> {
  const { to, socketPath, random, lossPercent, cutMs } = options;
  let repeated = 0;
  const server = createServer((incoming, outgoing) => {
    const forward = async (): Promise<void> => {
      const pieces: Buffer[] = [];
      for await (const piece of incoming) pieces.push(piece as Buffer);
      const headers = Object.fromEntries(
        Object.entries(incoming.headers).map(([name, value]) => [name, String(value)] as const),
      );
      const send = (signal?: AbortSignal): Promise<Reply> =>
        call(to, incoming.method ?? '', incoming.url ?? '', {
          headers,
          body: Buffer.concat(pieces),
          ...(signal === undefined ? {} : { signal }),
        });
      let reply: Reply | undefined;
      if (random(100) < lossPercent) {
        repeated++;
        await send(AbortSignal.timeout(random(cutMs))).catch(() => undefined);
      }
      while (reply === undefined) {
        reply = await send().catch(() => undefined);
        if (reply === undefined) await delay(20);
      }
      outgoing.writeHead(reply.status, { 'Content-Type': String(reply.headers['content-type'] ?? 'text/plain') });
      outgoing.end(reply.body);
    };
    forward().catch((error: unknown) => outgoing.destroy(error as Error));
  });
  server.listen(socketPath);
  await once(server, 'listening');
  return {
    socketPath,
    repeated: () => repeated,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
