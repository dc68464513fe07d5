/** Finds where in the files of a log a reader begins, and reads as little as possible for that. */
import { giveBuffer, POOLED_BYTES, takeBuffer } from '../buffer-pool.js';
import type { LogSource } from '../writing/log-files.js';
import type { RecordFormat } from '../drivers/record-format.js';
import type { Segment } from './segment.js';

/** The files of a log as they were at one moment. */
export interface LogSnapshot {
  /** Files that were rotated away, oldest first. */
  readonly rotated: readonly LogSource[];
  /** The newest file, which is held for the reader. Undefined when there is none. */
  readonly segment: Segment | undefined;
  /** The length of the newest file that belongs to the snapshot. */
  readonly end: number;
}

/** A file by its index (`rotated.length` is the newest one) and a place in it. */
export interface LogPosition {
  readonly index: number;
  readonly offset: number;
}

/** Returns where the last `tail` records (or all) begin. Records before `sinceNs` are skipped where that is cheap. */
export async function findStart(
  snapshot: LogSnapshot,
  format: RecordFormat,
  options: { readonly tail: number | undefined; readonly sinceNs: bigint | undefined },
): Promise<LogPosition> {
  const start = options.tail === undefined ? { index: 0, offset: 0 } : await findTail(snapshot, format, options.tail);
  return options.sinceNs === undefined ? start : findSince(snapshot, format, start, options.sinceNs);
}

async function findTail(snapshot: LogSnapshot, format: RecordFormat, tail: number): Promise<LogPosition> {
  let wanted = tail;
  for (let index = snapshot.rotated.length; index >= 0; index--) {
    const file = await fileAt(snapshot, index);
    if (!file) continue;
    if (wanted === 0) return { index, offset: file.end };
    const { offset, found } = await format.findTail(file.segment, file.end, wanted);
    wanted -= found;
    if (wanted === 0) return { index, offset };
  }
  return { index: 0, offset: 0 };
}

async function findSince(
  snapshot: LogSnapshot,
  format: RecordFormat,
  start: LogPosition,
  sinceNs: bigint,
): Promise<LogPosition> {
  let { index, offset } = start;
  for (; index <= snapshot.rotated.length; index++, offset = 0) {
    const known = await snapshot.rotated[index]?.lastTimeNs();
    if (known !== undefined && known < sinceNs) continue;
    const file = await fileAt(snapshot, index);
    if (!file) continue;
    const last = await lastTime(file.segment, file.end, format);
    if (last === undefined) break;
    if (last < sinceNs) continue;
    const first = await timeAt(file.segment, offset, file.end, format);
    // If a clock was set back by much, records are out of order; such a file is read from the start.
    if (first !== undefined && first <= last) offset = await bisect(file.segment, offset, file.end, format, sinceNs);
    break;
  }
  return index > snapshot.rotated.length ? { index: index - 1, offset: snapshot.end } : { index, offset };
}

/** Returns the time of the last record before `end`; undefined when that record is damaged or missing. */
export async function lastTime(segment: Segment, end: number, format: RecordFormat): Promise<bigint | undefined> {
  return timeAt(segment, (await format.findTail(segment, end, 1)).offset, end, format);
}

/** Returns an offset before the first record at or after `sinceNs`, less than two blocks away from it. */
async function bisect(
  segment: Segment,
  from: number,
  to: number,
  format: RecordFormat,
  sinceNs: bigint,
): Promise<number> {
  const block = takeBuffer();
  try {
    let low = from;
    let high = to;
    while (high - low > POOLED_BYTES) {
      const middle = low + Math.floor((high - low) / 2);
      const length = await segment.read(block, Math.min(POOLED_BYTES, high - middle), middle);
      const record = format.firstRecord(block, length, false);
      if (record && record.timeNs < sinceNs) low = middle + record.offset;
      else high = middle;
    }
    return low;
  } finally {
    giveBuffer(block);
  }
}

async function timeAt(
  segment: Segment,
  offset: number,
  end: number,
  format: RecordFormat,
): Promise<bigint | undefined> {
  const block = takeBuffer();
  try {
    const length = await segment.read(block, Math.min(POOLED_BYTES, end - offset), offset);
    return format.firstRecord(block, length, true)?.timeNs;
  } finally {
    giveBuffer(block);
  }
}

async function fileAt(
  snapshot: LogSnapshot,
  index: number,
): Promise<{ readonly segment: Segment; readonly end: number } | undefined> {
  const source = snapshot.rotated[index];
  if (!source) return snapshot.segment && { segment: snapshot.segment, end: snapshot.end };
  const segment = await source.segment();
  return { segment, end: segment.size };
}
