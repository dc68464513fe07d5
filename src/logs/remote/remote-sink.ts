/** The contract of the drivers of remote logs. */
import type { StreamName } from '../../ports/logs.js';
import type { Piece } from '../drivers/record-format.js';

/** A line without its newline, or a piece of a long one. */
export interface RemoteRecord {
  readonly stream: StreamName;
  readonly timeNs: bigint;
  readonly line: Buffer;
  readonly piece: Piece | undefined;
}

/** Takes the records of one container. */
export interface RemoteSink {
  /** At most so many records are sent together. */
  readonly batchRecords: number;
  /** An incomplete batch waits this long for more. */
  readonly lingerMs: number;
  /** So many bytes may wait; then the container waits or, when `isLossy`, lines are dropped. */
  readonly queueBytes: number;
  /** If true, lines without room are dropped in every mode, because the driver promises never to hold the container. */
  readonly isLossy: boolean;
  /**
   * Sends records, as fast as the other side takes them. Resolves when they are sent; rejects when they are lost after
   * all attempts of the driver. Aborting ends the attempts.
   */
  send(records: readonly RemoteRecord[], signal: AbortSignal): Promise<void>;
  /** Ends connections at once. */
  close(): void;
}

/** The limits that suit most drivers: one write takes a batch, and as much may wait as for a local file. */
export const DEFAULT_BATCH = { batchRecords: 128, lingerMs: 0, queueBytes: 1 << 20, isLossy: false } as const;
