/** A registry that counts how many uploads are open at the same time. */
import { createServer, request, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Cleanup } from '../support/cleanup.js';
import { startRegistry } from '../support/registry.js';

/** How long the end of an upload is held back, so that others may begin. */
const HOLD_MS = 150;

export interface UploadCounter {
  /** `127.0.0.1:port`. */
  readonly host: string;
  readonly uploads: number;
  /** The most that were open at once. */
  readonly most: number;
}

/** Stands in front of a real registry. */
export async function startUploadCounter(cleanup: Cleanup): Promise<UploadCounter> {
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  let [uploads, open, most] = [0, 0, 0];
  const forward = (incoming: IncomingMessage, answer: (message: IncomingMessage) => void): void => {
    const { method = 'GET', headers } = incoming;
    const onward = request(`${registry.url}${incoming.url}`, { method, headers }, answer);
    onward.on('error', () => incoming.destroy());
    incoming.pipe(onward);
  };
  const server: Server = createServer((incoming, outgoing) => {
    const isEnd = incoming.method === 'PUT' && incoming.url?.includes('/blobs/uploads/') === true;
    forward(incoming, (message) => {
      if (incoming.method === 'POST' && message.statusCode === 202) {
        uploads++;
        most = Math.max(most, ++open);
      }
      const reply = (): void => {
        if (isEnd) open--;
        outgoing.writeHead(message.statusCode ?? 500, message.headers);
        message.pipe(outgoing);
      };
      if (isEnd) setTimeout(reply, HOLD_MS);
      else reply();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  cleanup.add(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get uploads() {
      return uploads;
    },
    get most() {
      return most;
    },
  };
}
