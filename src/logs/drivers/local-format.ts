/** The file format of the local driver. Both ends of a record tell its length, so it can be read in both directions. */
import { giveBuffer, POOLED_BYTES, takeBuffer } from '../buffer-pool.js';
import { LENGTH_BYTES, LocalEncoder, LocalRecord, MAX_LOCAL_RECORD_BYTES, MESSAGE_START } from './local-record.js';
import type { OnDamage, OutputOptions, RecordDecoder, RecordFormat } from './record-format.js';
import { formatTimeFixed } from '../record-time.js';
import type { Segment } from '../reading/segment.js';
import { HEADER_BYTES } from '../attach/stdcopy.js';

const NEWLINE = 10;

export const localFormat: RecordFormat = {
  createEncoder: () => new LocalEncoder(),
  createDecoder: (options, onDamage) => new LocalDecoder(options, onDamage),
  findEnd: (segment) => lastEnd(segment, segment.size),

  async findTail(segment, end, count) {
    let offset = end;
    let found = 0;
    while (found < count) {
      const step = await backOverBlock(segment, offset, count - found);
      found += step.found;
      if (step.offset < offset) offset = step.offset;
      else {
        // The end is damaged or an unfinished record: go on before it.
        offset = await lastEnd(segment, offset - 1);
        if (offset === 0) break;
      }
    }
    return { offset, found };
  },

  firstRecord(block, length, isStart) {
    const record = new LocalRecord();
    if (isStart && record.read(block, length, 0) === 'whole') return { offset: 0, timeNs: record.timeNs };
    const offset = nextRecord(block, length, 0, record);
    return offset < 0 ? undefined : { offset, timeNs: record.timeNs };
  },
};

class LocalDecoder implements RecordDecoder {
  consumed = 0;
  isFinished = false;
  readonly #record = new LocalRecord();
  #timeText = '';
  #timeNs: bigint | undefined;

  constructor(
    private readonly options: OutputOptions,
    private readonly onDamage: OnDamage,
  ) {}

  decode(block: Buffer, length: number): Buffer {
    const record = this.#record;
    // A time or a header makes a short line longer; no record needs more than twice its size and 256 bytes.
    const out = Buffer.allocUnsafeSlow(length * 2 + 256);
    let end = 0;
    let at = 0;
    while (at < length && !this.isFinished) {
      const state = record.read(block, length, at);
      if (state === 'whole') {
        end = this.#emit(block, out, end);
        at = record.end;
        continue;
      }
      if (state === 'incomplete' && at > 0) break;
      // A record at the start of a block that does not end in it is damaged if another one follows.
      const next = nextRecord(block, length, at + 1, record);
      if (next < 0 && state === 'incomplete') break;
      const resumed = next < 0 ? Math.max(at, length - MAX_LOCAL_RECORD_BYTES) : next;
      if (resumed === at) break;
      this.onDamage(resumed - at);
      at = resumed;
    }
    this.consumed = at;
    return out.subarray(0, end);
  }

  /** A block without any record is damaged as a whole, except for a record that may begin at its end. */
  skip(block: Buffer): number {
    const bytes = block.length - MAX_LOCAL_RECORD_BYTES;
    this.onDamage(bytes);
    return bytes;
  }

  #emit(block: Buffer, out: Buffer, start: number): number {
    const { options } = this;
    const { stream, timeNs, lineStart, lineEnd, hasNewline } = this.#record;
    if (options.untilNs !== undefined && timeNs > options.untilNs) {
      this.isFinished = true;
      return start;
    }
    if ((options.sinceNs !== undefined && timeNs < options.sinceNs) || !options[stream]) return start;
    let at = start + (options.multiplexed ? HEADER_BYTES : 0);
    if (options.timestamps) at += out.write(this.#prefix(timeNs), at, 'latin1');
    // The format has no attributes, so the details are empty.
    if (options.details) out[at++] = 0x20;
    at += block.copy(out, at, lineStart, lineEnd);
    if (hasNewline) out[at++] = NEWLINE;
    if (options.multiplexed) {
      out.writeUInt32BE(stream === 'stdout' ? 0x01000000 : 0x02000000, start);
      out.writeUInt32BE(at - start - HEADER_BYTES, start + 4);
    }
    return at;
  }

  #prefix(timeNs: bigint): string {
    if (timeNs !== this.#timeNs) {
      this.#timeNs = timeNs;
      this.#timeText = `${formatTimeFixed(timeNs)} `;
    }
    return this.#timeText;
  }
}

/** Returns the next place at or after `from` where a whole record is; -1 when the block has none. */
function nextRecord(block: Buffer, length: number, from: number, record: LocalRecord): number {
  const bytes = block.subarray(0, length);
  for (let at = bytes.indexOf(MESSAGE_START, from + LENGTH_BYTES); at >= 0; at = bytes.indexOf(MESSAGE_START, at + 1)) {
    if (record.read(bytes, length, at - LENGTH_BYTES) === 'whole') return at - LENGTH_BYTES;
  }
  return -1;
}

/** Goes back from `end`, where a record ends, over at most `count` records of one block. */
async function backOverBlock(
  segment: Segment,
  end: number,
  count: number,
): Promise<{ readonly offset: number; readonly found: number }> {
  const block = takeBuffer();
  try {
    const from = Math.max(0, end - POOLED_BYTES);
    const length = await segment.read(block, end - from, from);
    const record = new LocalRecord();
    let at = length;
    let found = 0;
    while (found < count && at >= 2 * LENGTH_BYTES) {
      const start = at - 2 * LENGTH_BYTES - block.readUInt32BE(at - LENGTH_BYTES);
      if (start < 0 || record.read(block, at, start) !== 'whole') break;
      at = start;
      found++;
    }
    return { offset: from + at, found };
  } finally {
    giveBuffer(block);
  }
}

/** Returns where the last whole record before `limit` ends; 0 when there is none. */
async function lastEnd(segment: Segment, limit: number): Promise<number> {
  const block = takeBuffer();
  try {
    const record = new LocalRecord();
    for (let to = limit; to > 0;) {
      const from = Math.max(0, to - POOLED_BYTES);
      const length = await segment.read(block, to - from, from);
      const bytes = block.subarray(0, length);
      for (
        let at = bytes.lastIndexOf(MESSAGE_START);
        at >= LENGTH_BYTES;
        at = bytes.lastIndexOf(MESSAGE_START, at - 1)
      ) {
        if (record.read(bytes, length, at - LENGTH_BYTES) === 'whole') return from + record.end;
      }
      if (from === 0) break;
      to = from + MAX_LOCAL_RECORD_BYTES;
    }
    return 0;
  } finally {
    giveBuffer(block);
  }
}
