/** A registry that counts how many uploads are open at the same time. */
import { createServer, request, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Cleanup } from '../support/cleanup.js';
import { startRegistry } from '../support/registry.js';

/** How long the end of an upload is held back, so that others may begin. */
const HOLD_MS = 150;

export interface UploadCounter {
  /** `127.0.0.1:port`. */
  readonly host: string;
  /** Uploads that brought bytes, each once. */
  readonly uploads: ReadonlySet<string>;
  /** Whether one was broken off. */
  readonly hasBroken: boolean;
  /** The most that were open at once. */
  readonly most: number;
}

/**
 * Stands in front of a real registry.
 * @param cleanup ends both later.
 * @param breaksFirst breaks off the first upload that comes in pieces.
 */
export async function startUploadCounter(cleanup: Cleanup, { breaksFirst = false } = {}): Promise<UploadCounter> {
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  const uploads = new Set<string>();
  const open = new Set<string>();
  let [most, hasBroken] = [0, false];
  const forward = (incoming: IncomingMessage, answer: (message: IncomingMessage) => void): void => {
    const { method = 'GET', headers } = incoming;
    const onward = request(`${registry.url}${incoming.url}`, { method, headers }, answer);
    onward.on('error', () => incoming.destroy());
    incoming.pipe(onward);
  };
  const server = createServer((incoming, outgoing) => {
    const [path = ''] = (incoming.url ?? '').split('?');
    if (breaksFirst && incoming.method === 'PATCH' && !hasBroken) {
      hasBroken = true;
      open.delete(path);
      return void incoming.destroy();
    }
    if (path.includes('/blobs/uploads/') && incoming.method !== 'POST') {
      uploads.add(path);
      most = Math.max(most, open.add(path).size);
    }
    return forward(incoming, (message) => {
      const reply = (): void => {
        if (incoming.method === 'PUT') open.delete(path);
        outgoing.writeHead(message.statusCode ?? 500, message.headers);
        message.pipe(outgoing);
      };
      if (open.has(path)) setTimeout(reply, HOLD_MS);
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
    uploads,
    get hasBroken() {
      return hasBroken;
    },
    get most() {
      return most;
    },
  };
}
