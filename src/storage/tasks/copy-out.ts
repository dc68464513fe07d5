/** Worker tasks: files of a container as a tar, sent to the main thread as fast as it is taken there. */
import type { MessagePort } from 'node:worker_threads';
import type { ContainerView } from '../../ports/archives.js';
import { toBytePath } from '../byte-path.js';
import { findPath, statPath } from '../container-path.js';
import { archiveTar, contentsTar } from '../tar/archive-tar.js';
import { withView } from './container-view.js';
import { Credit } from './credit.js';

export interface CopyOutInput {
  readonly view: ContainerView;
  readonly path: string;
  /** Receives the PathStat, then as `sendChunks`. */
  readonly port: MessagePort;
}

export function copyOut({ view, path, port }: CopyOutInput): Promise<void> {
  const credit = new Credit(port);
  return withView(view, async (rootFd) => {
    const bytes = toBytePath(path);
    const found = findPath(rootFd, bytes);
    try {
      port.postMessage(statPath(rootFd, bytes, found), []);
      await sendChunks(archiveTar(found, found.name), port, credit);
    } finally {
      found.close();
    }
  });
}

/** All below a directory. */
export async function exportDirectory({ directory, port }: { readonly directory: string; readonly port: MessagePort }): Promise<void> {
  await sendChunks(contentsTar(toBytePath(directory)), port, new Credit(port));
}

/** Sends the chunks, then null; one for each message that comes. Closing the port ends it. */
async function sendChunks(chunks: Iterable<Buffer>, port: MessagePort, credit: Credit): Promise<void> {
  for (const chunk of chunks) {
    if (!(await credit.take())) return;
    port.postMessage(chunk, [chunk.buffer as ArrayBuffer]);
  }
  port.postMessage(null, []);
}
