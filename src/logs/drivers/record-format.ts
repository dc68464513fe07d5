/** How records of one kind of log file are written and found again; one implementation per file format. */
import type { LogReadOptions, StreamName } from '../../ports/logs.js';
import type { Segment } from '../reading/segment.js';

/** A line longer than this is kept as several records, of which only the last has the newline. */
export const MAX_LINE_BYTES = 16 * 1024;

/** No record is taken for one that is larger than this. */
export const MAX_RECORD_BYTES = 4 * 1024 * 1024;

/** Place of a record in a line that is longer than MAX_LINE_BYTES. */
export interface Piece {
  /** The same for all pieces of a line: 64 hex digits. */
  readonly id: string;
  /** From 1. */
  readonly ordinal: number;
  readonly isLast: boolean;
}

export interface RecordEncoder {
  /** No record is larger. */
  readonly maxRecordBytes: number;
  /** The end of what `encodeLines` wrote. */
  readonly end: number;
  /** Whose lines the next calls encode, and when they were printed. */
  begin(stream: StreamName, timeNs: bigint): void;
  /**
   * Encodes source[from, to), a line without its newline or a piece of one, at `at` of `out`. Returns the end in `out`,
   * which must have room for the largest record.
   */
  encode(source: Buffer, from: number, to: number, piece: Piece | undefined, out: Buffer, at: number): number;
  /**
   * Encodes complete lines of at most MAX_LINE_BYTES, as long as there are any and the next one begins before `limit`
   * of `out`, behind which there must be room for the largest record. Returns the end in `source`, sets `end`.
   */
  encodeLines(source: Buffer, from: number, out: Buffer, at: number, limit: number): number;
  /** How many records there are in encoded bytes. */
  count(records: Buffer): number;
}

/** What readers ask for, apart from where they begin. */
export type OutputOptions = Pick<
  LogReadOptions,
  'stdout' | 'stderr' | 'timestamps' | 'details' | 'sinceNs' | 'untilNs' | 'multiplexed'
>;

export interface RecordDecoder {
  /** How much of the block the last `decode` used: whole records. */
  readonly consumed: number;
  /** True after a record later than `untilNs`: the reader wants no more. */
  readonly isFinished: boolean;
  /** Output, ready for the wire, of the whole records in block[0, length); damaged ones are left out and reported. */
  decode(block: Buffer, length: number): Buffer;
  /**
   * For a block of MAX_RECORD_BYTES in which `decode` found no end of a record: how many bytes of it cannot be the
   * beginning of one.
   */
  skip(block: Buffer): number;
}

/** Hears of bytes that are no record and were left out. */
export type OnDamage = (bytes: number) => void;

export interface RecordFormat {
  /** @param attrs extra members of each record; formats without any ignore them. */
  createEncoder(attrs: Readonly<Record<string, string>>): RecordEncoder;
  createDecoder(options: OutputOptions, onDamage: OnDamage): RecordDecoder;
  /** Where the last whole record ends. */
  findEnd(segment: Segment): Promise<number>;
  /** Where the last `count` records before `end` begin, and how many there are. Reads only these. */
  findTail(segment: Segment, end: number, count: number): Promise<{ readonly offset: number; readonly found: number }>;
  /** The first whole record that begins in block[0, length); `isStart`: the block begins with a record. */
  firstRecord(
    block: Buffer,
    length: number,
    isStart: boolean,
  ): { readonly offset: number; readonly timeNs: bigint } | undefined;
}
