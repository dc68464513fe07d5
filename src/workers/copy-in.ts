/** Task: unpacks a tar, compressed or not, into a directory of a container while its bytes arrive. */
import { closeSync, fstatSync, openSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { MessagePort } from 'node:worker_threads';
import { invalid } from '../errors/engine-error.js';
import type { ContainerView, WriteOptions, Written } from '../ports/archives.js';
import type { IdMaps } from '../ports/id-maps.js';
import { fsPath, toBytePath, toText } from '../storage/byte-path.js';
import { openResolved } from '../storage/container-path.js';
import { withView } from '../storage/tasks/container-view.js';
import { beginsTar, BLOCK_SIZE } from '../storage/tar/header.js';
import { TreeExtractor, type TreeExtractorOptions } from '../storage/tar/tree-extractor.js';
import { closeFd } from '../sys/files/fd.js';
import { gainsBySpace } from '../sys/files/space-ahead.js';
import { openInRoot } from '../sys/files/open-in-root.js';
import { WriteBehind } from '../sys/files/write-behind.js';
import { makeFilesAs } from '../sys/users/file-system-ids.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { CopyMemory } from './copy-memory.js';
import { createDecompressor, isCompressed } from './decompress.js';
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
export async function copyIn({ view, path, options, idMaps, port }: CopyInInput): Promise<Written> {
  const behind = new WriteBehind();
  const memory = new CopyMemory(behind);
  const received = receivePieces(port, memory);
  const { plainFile, ...others } = options;
  const work = withView(view, idMaps, async (rootFd): Promise<Written> => {
    const directory = openDirectory(rootFd, toBytePath(path));
    checkWritable(view, toText(directory));
    port.postMessage(0, []);
    // A container's overlay is mounted beside the directory that its new files are in.
    const target = { rootFd, directory, idMaps, behind, ...others, upperGains: gainsBySpace(dirname(view.rootfs)) };
    const head = await headOf(received);
    if (plainFile === undefined || isCompressed(head) || beginsTar(head)) {
      await unpack(head, received, target, memory);
      return 'archive';
    }
    const fd = openInRoot(rootFd, fsPath(directory));
    try {
      makeFilesAs(rootOwner(idMaps));
      await writePieces(`/proc/self/fd/${fd}/${plainFile}`, head, received);
    } finally {
      closeFd(fd);
    }
    return 'file';
  });
  return work.finally(() => {
    port.close();
    memory.free();
  });
}

async function unpack(
  head: Buffer,
  rest: AsyncIterable<Buffer>,
  target: TreeExtractorOptions,
  memory: CopyMemory,
): Promise<void> {
  const extractor = new TreeExtractor(target);
  memory.filePosition = () => extractor.filePosition;
  const owner = rootOwner(target.idMaps);
  // Between two pieces the thread works for others, too.
  const write = (chunk: Buffer, isLent = false): void => {
    makeFilesAs(owner);
    extractor.write(chunk, isLent);
  };
  try {
    if (isCompressed(head)) await decompress(head, rest, write);
    else {
      write(head);
      for await (const piece of rest) write(piece, memory.isForBehind(piece));
    }
    makeFilesAs(owner);
    extractor.finish();
  } finally {
    extractor.close();
  }
}

async function decompress(head: Buffer, rest: AsyncIterable<Buffer>, consumer: (chunk: Buffer) => void): Promise<void> {
  const decompressor = createDecompressor(consumer);
  try {
    await decompressor.write(head);
    for await (const piece of rest) await decompressor.write(piece);
    await decompressor.end();
  } finally {
    decompressor.destroy();
  }
}

/** Reads so much that an archive can be told from anything else. */
async function headOf(pieces: AsyncGenerator<Buffer>): Promise<Buffer> {
  let head = Buffer.alloc(0);
  while (head.length < BLOCK_SIZE) {
    const next = await pieces.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  return head;
}

async function writePieces(path: string, head: Buffer, rest: AsyncIterable<Buffer>): Promise<void> {
  const fd = openSync(path, 'wx', 0o600);
  try {
    writeFileSync(fd, head);
    for await (const piece of rest) writeFileSync(fd, piece);
  } finally {
    closeSync(fd);
  }
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
