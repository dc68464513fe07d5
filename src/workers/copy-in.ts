/** Task: unpacks a tar, compressed or not, into a directory of a container while its bytes arrive. */
import { fstatSync } from 'node:fs';
import type { MessagePort } from 'node:worker_threads';
import { cancelled, invalid } from '../errors/engine-error.js';
import type { ContainerView, SocketBody, WriteOptions } from '../ports/archives.js';
import type { IdMaps } from '../ports/id-maps.js';
import { toBytePath, toText } from '../storage/byte-path.js';
import { openResolved } from '../storage/container-path.js';
import { withView } from '../storage/tasks/container-view.js';
import { TreeExtractor } from '../storage/tar/tree-extractor.js';
import { closeFd } from '../sys/files/fd.js';
import { SLOT_BYTES } from '../storage/send-pieces.js';
import { createDecompressor, isCompressed } from './decompress.js';
import { readSocketBody } from './socket-body.js';

type Message = SocketBody | SharedArrayBuffer | number | null;

export interface CopyInInput {
  readonly view: ContainerView;
  readonly path: string;
  readonly options: WriteOptions;
  readonly idMaps: IdMaps | undefined;
  /** Is told when the directory is found, and then brings a SocketBody or what `sendPieces` sends. */
  readonly port: MessagePort;
}

/** @throws EngineError cancelled when the port is closed before the end of the tar. */
export async function copyIn({ view, path, options, idMaps, port }: CopyInInput): Promise<void> {
  const slots = receive(port);
  const work = withView(view, idMaps, async (rootFd) => {
    const directory = openDirectory(rootFd, toBytePath(path));
    checkWritable(view, toText(directory));
    const extractor = new TreeExtractor({ rootFd, directory, idMaps, ...options });
    const decompressor = createDecompressor((chunk) => extractor.write(chunk));
    port.postMessage(0, []);
    let mustKeep: boolean | undefined;
    try {
      for await (const slot of slots) {
        // Compressed bytes are inflated behind our back, while the slot has other bytes already.
        mustKeep ??= isCompressed(slot);
        await decompressor.write(mustKeep ? Buffer.from(slot) : slot);
      }
      await decompressor.end();
      extractor.finish();
    } finally {
      decompressor.destroy();
      extractor.close();
    }
  });
  await work.finally(() => port.close());
}

function openDirectory(rootFd: number, path: string): string {
  const { fd, path: directory } = openResolved(rootFd, path);
  try {
    if (!fstatSync(fd).isDirectory()) throw invalid('extraction point is not a directory', { code: 'NOT_A_DIRECTORY' });
    return directory;
  } finally {
    closeFd(fd);
  }
}

/** Refuses a read-only place as dockerd does; the kernel guards what is mounted below. */
function checkWritable({ mounts, tmpfs, procFd, isRootReadOnly }: ContainerView, directory: string): void {
  const present = procFd === undefined ? mounts : [...mounts, ...tmpfs];
  const containing = present.filter(
    ({ destination }) => directory === destination || directory.startsWith(`${destination}/`),
  );
  const mount = containing.toSorted((a, b) => b.destination.length - a.destination.length)[0];
  if (mount?.readOnly) throw invalid('mounted volume is marked read-only', { code: 'READ_ONLY' });
  if (!mount && isRootReadOnly) throw invalid('container rootfs is marked read-only', { code: 'READ_ONLY' });
}

/**
 * Returns the archive: from its socket, or from `sendPieces`, whose slots are given back when the next one is asked
 * for.
 */
async function* receive(port: MessagePort): AsyncGenerator<Buffer> {
  const queue: Message[] = [];
  let isClosed = false;
  let wake: (() => void) | undefined;
  port.on('message', (message: Message) => {
    queue.push(message);
    wake?.();
  });
  port.on('close', () => {
    isClosed = true;
    wake?.();
  });
  const next = async (): Promise<Message> => {
    for (;;) {
      const message = queue.shift();
      if (message !== undefined) return message;
      if (isClosed) throw cancelled('the archive was not sent to its end');
      await new Promise<void>((resolve) => (wake = resolve));
    }
  };
  const first = (await next()) as SharedArrayBuffer | SocketBody;
  if ('fd' in first) {
    yield* readSocketBody(first);
    return;
  }
  const memory = first;
  for (let at = 0; ; at = (at + SLOT_BYTES) % memory.byteLength) {
    const length = (await next()) as number | null;
    if (length === null) return;
    yield Buffer.from(memory, at, length);
    port.postMessage(0, []);
  }
}
