/** Streams the tar of a layer, which a worker makes and checks. */
import type { Readable } from 'node:stream';
import { MessageChannel } from 'node:worker_threads';
import type { WorkerPool } from '../../workers/pool.js';
import { portStream } from '../port-stream.js';
import type { StreamTarInput } from '../tasks/stream-tar.js';

/**
 * The stream fails with data-loss when the layer is damaged, at the latest before its end. Destroying it ends the work.
 */
export function tarStream(workers: WorkerPool, layer: Omit<StreamTarInput, 'port'>): Readable {
  const { port1: near, port2: far } = new MessageChannel();
  const stream = portStream(near);
  workers
    .run('stream-tar', { ...layer, port: far }, { transferList: [far] })
    .catch((error: unknown) => stream.destroy(error as Error));
  return stream;
}
