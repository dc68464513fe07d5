/** Task: unpacks a tar, compressed or not, into a directory of a container while its bytes arrive. */
import { fstatSync } from 'node:fs';
import type { MessagePort } from 'node:worker_threads';
import { cancelled, invalid } from '../errors/engine-error.js';
import type { ContainerView, WriteOptions } from '../ports/archives.js';
import { toBytePath, toText } from '../storage/byte-path.js';
import { openResolved } from '../storage/container-path.js';
import { withView } from '../storage/tasks/container-view.js';
import { TreeExtractor } from '../storage/tar/tree-extractor.js';
import { closeFd } from '../sys/fd.js';
import { createDecompressor } from './decompress.js';
import { bufferDied } from './young-collector.js';

export interface CopyInInput {
  readonly view: ContainerView;
  readonly path: string;
  readonly options: WriteOptions;
  /** Brings batches of chunks (Uint8Array[]), then null; one batch for each message that is sent to it. */
  readonly port: MessagePort;
}

/** Batches on their way at once. */
const WINDOW = 4;

/** @throws EngineError cancelled when the port is closed before the end of the tar. */
export async function copyIn({ view, path, options, port }: CopyInInput): Promise<void> {
  const batches = receive(port);
  const work = withView(view, async (rootFd) => {
    const directory = openDirectory(rootFd, toBytePath(path));
    checkWritable(view, toText(directory));
    const extractor = new TreeExtractor({ rootFd, directory, ...options });
    const decompressor = createDecompressor((chunk) => extractor.write(chunk));
    for (let count = 0; count < WINDOW; count++) port.postMessage(0, []);
    try {
      for await (const batch of batches) {
        for (const chunk of batch) {
          await decompressor.write(chunk);
          bufferDied(chunk.length);
        }
        port.postMessage(0, []);
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

/** As dockerd words it; the kernel guards what is mounted below. */
function checkWritable({ mounts, tmpfs, procFd, isRootReadOnly }: ContainerView, directory: string): void {
  const present = procFd === undefined ? mounts : [...mounts, ...tmpfs];
  const containing = present.filter(({ destination }) => directory === destination || directory.startsWith(`${destination}/`));
  const mount = containing.toSorted((a, b) => b.destination.length - a.destination.length)[0];
  if (mount?.readOnly) throw invalid('mounted volume is marked read-only', { code: 'READ_ONLY' });
  if (!mount && isRootReadOnly) throw invalid('container rootfs is marked read-only', { code: 'READ_ONLY' });
}

async function* receive(port: MessagePort): AsyncGenerator<readonly Buffer[]> {
  const queue: (readonly Buffer[] | null)[] = [];
  let isClosed = false;
  let wake: (() => void) | undefined;
  port.on('message', (batch: readonly Uint8Array[] | null) => {
    queue.push(batch && batch.map((chunk) => Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)));
    wake?.();
  });
  port.on('close', () => {
    isClosed = true;
    wake?.();
  });
  for (;;) {
    const batch = queue.shift();
    if (batch === null) return;
    if (batch !== undefined) {
      yield batch;
      continue;
    }
    if (isClosed) throw cancelled('the archive was not sent to its end');
    await new Promise<void>((resolve) => (wake = resolve));
  }
}
