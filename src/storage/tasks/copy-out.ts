/** Worker tasks: send files of a container as a tar to the main thread, as fast as it takes them, or to a socket. */
import type { MessagePort } from 'node:worker_threads';
import type { ContainerView } from '../../ports/archives.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { toBytePath } from '../byte-path.js';
import { findPath, statPath } from '../container-path.js';
import { archiveTar, contentsTar, newChunk, type ChunkMemory } from '../tar/archive-tar.js';
import { withView } from './container-view.js';
import { Credit } from './credit.js';
import { writeHttpChunks } from './http-chunks.js';

export interface CopyOutInput {
  readonly view: ContainerView;
  readonly path: string;
  readonly idMaps: IdMaps | undefined;
  /** Receives the PathStat, then as `TarSender`. */
  readonly port: MessagePort;
}

export function copyOut({ view, path, idMaps, port }: CopyOutInput): Promise<void> {
  const sender = new TarSender(port);
  return withView(view, idMaps, async (rootFd) => {
    const bytes = toBytePath(path);
    const found = findPath(rootFd, bytes);
    try {
      port.postMessage(statPath(rootFd, bytes, found), []);
      await sender.send((memory) => archiveTar(found, found.name, memory, idMaps));
    } finally {
      found.close();
    }
  });
}

/** Sends all below a directory. */
export async function exportDirectory({
  directory,
  idMaps,
  mtimeSeconds,
  port,
}: {
  readonly directory: string;
  readonly idMaps: IdMaps | undefined;
  readonly mtimeSeconds?: number | undefined;
  readonly port: MessagePort;
}): Promise<void> {
  await new TarSender(port).send((memory) => contentsTar(toBytePath(directory), memory, idMaps, mtimeSeconds));
}

/**
 * Sends a tar where the other end of a port wants it. For each 0 that comes it sends a chunk, then null; for the number
 * of a descriptor it sends all of it to that socket as HTTP chunks. Closing the port ends it.
 */
class TarSender {
  readonly #port: MessagePort;
  readonly #credit: Credit;
  #socketFd = 0;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (socketFd: number) => (this.#socketFd = socketFd));
    this.#credit = new Credit(port);
  }

  async send(tar: (memory: ChunkMemory) => Iterable<Buffer>): Promise<void> {
    if (!(await this.#credit.take())) return;
    if (this.#socketFd !== 0) return writeHttpChunks(this.#socketFd, tar, this.#port);
    let isWanted = true;
    for (const chunk of tar(newChunk)) {
      if (!isWanted && !(await this.#credit.take())) return;
      isWanted = false;
      this.#port.postMessage(chunk, [chunk.buffer as ArrayBuffer]);
    }
    this.#port.postMessage(null, []);
  }
}
