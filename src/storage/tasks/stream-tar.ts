/** Worker task: sends the tar of a layer to the main thread, as fast as it takes it. */
import { createHash } from 'node:crypto';
import type { MessagePort } from 'node:worker_threads';
import { dataLoss } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { trimHeaps } from '../../sys/process/memory.js';
import { assembleTar, type AssembleInput } from '../tar/assemble.js';
import { Credit } from './credit.js';

export interface StreamTarInput extends AssembleInput {
  readonly diffId: Digest;
  /**
   * Receives chunks (Uint8Array), then null; each message sent to it lets one more chunk come. Closing it ends the
   * task.
   */
  readonly port: MessagePort;
}

/** @throws EngineError data-loss when the tar is not the one that the digest names; the null is not sent then. */
export async function streamTar({ diffId, port, ...input }: StreamTarInput): Promise<void> {
  const credit = new Credit(port);
  const hash = createHash('sha256');
  for (const chunk of assembleTar(input)) {
    hash.update(chunk);
    if (!(await credit.take())) return;
    port.postMessage(chunk, [chunk.buffer as ArrayBuffer]);
  }
  if (`sha256:${hash.digest('hex')}` !== diffId)
    throw dataLoss(`layer ${diffId} was changed on disk`, { code: 'LAYER_DAMAGED' });
  port.postMessage(null, []);
  trimHeaps();
}
