/**
 * Finds out what of the output of a container its log has, when the daemon was killed after it had written records and
 * before it could note that. Output is cut into records by its bytes alone, so to count them is enough.
 */
import { constants } from 'node:fs';
import type { LogPlace, StreamName } from '../../ports/logs.js';
import { giveBuffer, POOLED_BYTES, takeBuffer } from '../buffer-pool.js';
import { MAX_RECORD_BYTES, type RecordFormat } from '../drivers/record-format.js';
import { LineSplitter } from '../writing/line-splitter.js';
import { openSegment, rotatedFiles } from '../writing/log-files.js';
import type { Segment } from './segment.js';

/** Each record is a frame with this header: its first byte is the stream, its last four are the length. */
const HEADER_BYTES = 8;
const STDERR = 2;

type PerStream<T> = Readonly<Record<StreamName, T>>;

export interface SearchedLog {
  readonly path: string;
  /** The newest file. */
  readonly segment: Segment;
  readonly format: RecordFormat;
}

/** Does `LogLedger.loggedSince`. Nothing may be written to the log meanwhile. */
export async function loggedSince(
  place: LogPlace,
  bytes: PerStream<Buffer>,
  log: SearchedLog,
): Promise<PerStream<number>> {
  const counts = { stdout: 0, stderr: 0 };
  const { segment, path, format } = log;
  if (segment.inode === place.file) await count(segment, place.offset, format, counts);
  else {
    // The place is noted anew after a rotation, before the new file has anything and before the old one is compressed.
    await countInRotated(path, place, format, counts);
    await count(segment, 0, format, counts);
  }
  return { stdout: lengthOf(bytes.stdout, counts.stdout), stderr: lengthOf(bytes.stderr, counts.stderr) };
}

async function countInRotated(
  path: string,
  place: LogPlace,
  format: RecordFormat,
  counts: Record<StreamName, number>,
): Promise<void> {
  for (const file of await rotatedFiles(path)) {
    const segment = await openSegment(file.path, constants.O_RDONLY);
    try {
      if (segment.inode === place.file) await count(segment, place.offset, format, counts);
    } finally {
      segment.release();
    }
  }
}

/** Adds the records from this place on. A file that has become shorter was emptied by somebody else. */
async function count(
  segment: Segment,
  place: number,
  format: RecordFormat,
  counts: Record<StreamName, number>,
): Promise<void> {
  const decoder = format.createDecoder(EVERYTHING, () => undefined);
  let offset = place > segment.size ? 0 : place;
  let block = takeBuffer();
  try {
    while (offset < segment.size) {
      const length = await segment.read(block, Math.min(block.length, segment.size - offset), offset);
      const frames = decoder.decode(block, length);
      for (let at = 0; at < frames.length; at += HEADER_BYTES + frames.readUInt32BE(at + 4))
        counts[frames[at] === STDERR ? 'stderr' : 'stdout']++;
      offset += decoder.consumed;
      if (decoder.consumed > 0) continue;
      // No record follows, or one that is larger than the block.
      if (block.length >= MAX_RECORD_BYTES || length < block.length) return;
      if (block.length === POOLED_BYTES) giveBuffer(block);
      block = Buffer.allocUnsafeSlow(MAX_RECORD_BYTES);
    }
  } finally {
    giveBuffer(block);
  }
}

const EVERYTHING = {
  stdout: true,
  stderr: true,
  timestamps: false,
  details: false,
  sinceNs: undefined,
  untilNs: undefined,
  multiplexed: true,
} as const;

/** Returns how many bytes so many records are of. One more than there are is the beginning of a line, at a stop. */
function lengthOf(bytes: Buffer, records: number): number {
  const splitter = new LineSplitter();
  const found = { records: 0 };
  let at = 0;
  while (found.records < records) {
    if (at === bytes.length) return at;
    at = splitter.take(bytes, at, () => void found.records++);
  }
  return at;
}
