/** Copies files into an image; when they are many, a second thread writes what the first one reads. */
import { MessageChannel } from 'node:worker_threads';
import type { LayerContent } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { CopyFilesInput } from './copy-files.js';
import { endLine, failLine } from './file-line.js';

/** @throws EngineError of the thread that has failed. */
export async function copyInTwo(
  pool: WorkerPool,
  input: Omit<CopyFilesInput, 'port'>,
  signal: AbortSignal,
): Promise<LayerContent | undefined> {
  const { port1: near, port2: port } = new MessageChannel();
  let memory: SharedArrayBuffer | undefined;
  let failure: unknown;
  near.once('message', (called: SharedArrayBuffer) => {
    memory = called;
    // When no thread is free before the files are copied, it finds nothing to do.
    pool.run('build-write-line', { memory }, { signal }).catch((error: unknown) => {
      failure = error;
      failLine(called);
    });
  });
  try {
    return await pool.run('build-copy', { ...input, port }, { signal, transferList: [port] });
  } catch (error) {
    throw failure ?? error;
  } finally {
    near.close();
    if (memory) endLine(memory);
  }
}
