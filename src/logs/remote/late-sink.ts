/**
 * A sink for a container that runs already when the daemon comes back. Such a container must not fail because its log
 * server cannot be reached. The sink connects by itself; until then lines wait, as many as have room.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { DEFAULT_BATCH, type RemoteRecord, type RemoteSink } from './remote-sink.js';

const RETRY_MS = 1_000;

export class LateSink implements RemoteSink {
  #sink: RemoteSink | undefined;
  #isClosed = false;
  #isTold = false;

  /**
   * @param open connects, and throws when that fails.
   * @param onFailure is called with the first failure.
   */
  constructor(
    private readonly open: (signal: AbortSignal) => Promise<RemoteSink>,
    private readonly onFailure: (error: unknown) => void,
  ) {}

  get batchRecords(): number {
    return this.#sink?.batchRecords ?? DEFAULT_BATCH.batchRecords;
  }

  get lingerMs(): number {
    return this.#sink?.lingerMs ?? DEFAULT_BATCH.lingerMs;
  }

  get queueBytes(): number {
    return this.#sink?.queueBytes ?? DEFAULT_BATCH.queueBytes;
  }

  /**
   * Until it is connected, lines without room are dropped: the container must not wait for a server that may never
   * come.
   */
  get isLossy(): boolean {
    return this.#sink?.isLossy ?? true;
  }

  async send(records: readonly RemoteRecord[], signal: AbortSignal): Promise<void> {
    const sink = this.#sink ?? (await this.#connect(signal));
    // These records may be more than one batch of the sink, because its limit was not known when they were taken.
    for (let at = 0; at < records.length; at += sink.batchRecords)
      await sink.send(records.slice(at, at + sink.batchRecords), signal);
  }

  close(): void {
    this.#isClosed = true;
    this.#sink?.close();
  }

  async #connect(signal: AbortSignal): Promise<RemoteSink> {
    for (;;) {
      signal.throwIfAborted();
      try {
        this.#sink = await this.open(signal);
        if (this.#isClosed) this.#sink.close();
        return this.#sink;
      } catch (error) {
        if (!this.#isTold) this.onFailure(error);
        this.#isTold = true;
      }
      await sleep(RETRY_MS, undefined, { signal });
    }
  }
}
