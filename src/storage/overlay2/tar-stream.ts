/** The tar of a layer as a stream: made and checked in a worker, which waits while nobody reads. */
import { Readable } from 'node:stream';
import { MessageChannel } from 'node:worker_threads';
import type { WorkerPool } from '../../workers/pool.js';
import type { StreamTarInput } from '../tasks/stream-tar.js';

/** Chunks of 256 KiB on their way at once. */
const WINDOW = 4;

/** The stream fails with data-loss when the layer is damaged, at the latest before its end. Destroying it ends the work. */
export function tarStream(workers: WorkerPool, layer: Omit<StreamTarInput, 'port'>): Readable {
  const { port1: near, port2: far } = new MessageChannel();
  let credit = WINDOW;
  const stream = new Readable({
    highWaterMark: 1,
    read() {
      for (; credit > 0; credit--) near.postMessage(0, []);
    },
    destroy(error, callback) {
      near.close();
      callback(error);
    },
  });
  near.on('message', (chunk: Uint8Array | null) => {
    if (stream.destroyed) return;
    if (chunk === null) {
      stream.push(null);
      return;
    }
    credit++;
    stream.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
  });
  workers.run('stream-tar', { ...layer, port: far }, { transferList: [far] }).catch((error: unknown) => stream.destroy(error as Error));
  return stream;
}
