/** What the drivers of remote logs have in common. */
import type { StreamName } from '../../ports/logs.js';
import type { Piece } from '../drivers/record-format.js';

/** A line without its newline, or a piece of a long one. */
export interface RemoteRecord {
  readonly stream: StreamName;
  readonly timeNs: bigint;
  readonly line: Buffer;
  readonly piece: Piece | undefined;
}

/** Where the records of one container go. */
export interface RemoteSink {
  /** So many records at most go together. */
  readonly batchRecords: number;
  /** An incomplete batch waits this long for more. */
  readonly lingerMs: number;
  /** Bytes that may wait before the container has to, or before lines are dropped when `isLossy`. */
  readonly queueBytes: number;
  /** Lines without room are dropped in every mode: the driver promises never to hold the container. */
  readonly isLossy: boolean;
  /**
   * Resolves when the records are out of our hands; takes as long as the other side does. Rejects when they are lost,
   * after the driver's own attempts. Aborting ends the attempts.
   */
  send(records: readonly RemoteRecord[], signal: AbortSignal): Promise<void>;
  /** Ends connections at once. */
  close(): void;
}

/** What most drivers need: what one write carries, and what the local files of a log may have waiting, too. */
export const DEFAULT_BATCH = { batchRecords: 128, lingerMs: 0, queueBytes: 1 << 20, isLossy: false } as const;
