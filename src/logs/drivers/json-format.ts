/** The file format of the json-file driver: one JSON object per line, so that every newline is the end of a record. */
import { giveBuffer, POOLED_BYTES, takeBuffer } from '../buffer-pool.js';
import { JsonDecoder } from './json-decoder.js';
import { parseRecord } from './json-record.js';
import { JsonEncoder } from './json-encoder.js';
import type { RecordFormat } from './record-format.js';
import type { Segment } from '../reading/segment.js';

const NEWLINE = 10;

export const jsonFormat: RecordFormat = {
  createEncoder: (attrs) => new JsonEncoder(attrs),
  createDecoder: (options, onDamage) => new JsonDecoder(options, onDamage),

  async findEnd(segment) {
    return (await beginningOfLines(segment, segment.size, 1)).offset;
  },

  async findTail(segment, end, count) {
    const whole = (await beginningOfLines(segment, end, 1)).offset;
    const { offset, found } = await beginningOfLines(segment, whole, count + 1);
    return { offset, found: Math.min(count, found) };
  },

  firstRecord(block, length, isStart) {
    const bytes = block.subarray(0, length);
    let at = isStart ? 0 : bytes.indexOf(NEWLINE) + 1;
    if (at === 0 && !isStart) return undefined;
    for (;;) {
      const newline = bytes.indexOf(NEWLINE, at);
      if (newline < 0) return undefined;
      const record = parseRecord(bytes.subarray(at, newline));
      if (record) return { offset: at, timeNs: record.timeNs };
      at = newline + 1;
    }
  },
};

/**
 * Goes back from `end` over `count` newlines. Returns the offset behind the last one found (0 when there are fewer),
 * and the number of lines between it and `end`; an unfinished line at the end does not count.
 */
async function beginningOfLines(
  segment: Segment,
  end: number,
  count: number,
): Promise<{ readonly offset: number; readonly found: number }> {
  const block = takeBuffer();
  try {
    let newlines = 0;
    for (let to = end; to > 0;) {
      const from = Math.max(0, to - POOLED_BYTES);
      const bytes = block.subarray(0, await segment.read(block, to - from, from));
      for (let at = bytes.lastIndexOf(NEWLINE); at >= 0; at = at === 0 ? -1 : bytes.lastIndexOf(NEWLINE, at - 1)) {
        if (++newlines === count) return { offset: from + at + 1, found: newlines - 1 };
      }
      to = from;
    }
    return { offset: 0, found: newlines };
  } finally {
    giveBuffer(block);
  }
}
