/** Task: unpacks a tar, compressed or not, into a directory of a container while its bytes arrive. */
import { fstatSync } from 'node:fs';
import type { MessagePort } from 'node:worker_threads';
import { invalid } from '../errors/engine-error.js';
import type { ContainerView, WriteOptions } from '../ports/archives.js';
import type { IdMaps } from '../ports/id-maps.js';
import { toBytePath, toText } from '../storage/byte-path.js';
import { openResolved } from '../storage/container-path.js';
import { withView } from '../storage/tasks/container-view.js';
import { TreeExtractor } from '../storage/tar/tree-extractor.js';
import { closeFd } from '../sys/files/fd.js';
import { createDecompressor } from './decompress.js';
import { receivePieces } from './receive-pieces.js';

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
  const pieces = receivePieces(port);
  const work = withView(view, idMaps, async (rootFd) => {
    const directory = openDirectory(rootFd, toBytePath(path));
    checkWritable(view, toText(directory));
    const extractor = new TreeExtractor({ rootFd, directory, idMaps, ...options });
    const decompressor = createDecompressor((chunk) => extractor.write(chunk));
    port.postMessage(0, []);
    try {
      for await (const piece of pieces) await decompressor.write(piece);
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
