/** Writes the records of one kind of log file and finds them again; each file format has one implementation. */
import type { LogReadOptions, StreamName } from '../../ports/logs.js';
import type { Segment } from '../reading/segment.js';

/** A line longer than this is kept as several records, of which only the last has the newline. */
export const MAX_LINE_BYTES = 16 * 1024;

/** Anything larger than this is not taken for a record. */
export const MAX_RECORD_BYTES = 4 * 1024 * 1024;

/** Place of a record in a line that is longer than MAX_LINE_BYTES. */
export interface Piece {
  /** 64 hex digits that all pieces of a line share. */
  readonly id: string;
  /** Place in the line, from 1. */
  readonly ordinal: number;
  readonly isLast: boolean;
}

export interface RecordEncoder {
  /** Size of the largest record, in bytes. */
  readonly maxRecordBytes: number;
  /** The end of what `encodeLines` wrote. */
  readonly end: number;
  /** Sets the stream and the time of the lines that the next calls encode. */
  begin(stream: StreamName, timeNs: bigint): void;
  /**
   * Encodes source[from, to), a line without its newline or a piece of one, at `at` of `out`. Returns the end in `out`,
   * which must have room for the largest record.
   */
  encode(source: Buffer, from: number, to: number, piece: Piece | undefined, out: Buffer, at: number): number;
  /**
   * Encodes complete lines of at most MAX_LINE_BYTES, as long as the next one begins before `limit` of `out`; there
   * must be room for the largest record behind it. Returns the end in `source` and sets `end`.
   */
  encodeLines(source: Buffer, from: number, out: Buffer, at: number, limit: number): number;
  /** Returns the number of records in encoded bytes. */
  count(records: Buffer): number;
}

/** The options of a reader, except where it begins. */
export type OutputOptions = Pick<
  LogReadOptions,
  'stdout' | 'stderr' | 'timestamps' | 'details' | 'sinceNs' | 'untilNs' | 'multiplexed'
>;

export interface RecordDecoder {
  /** The bytes of the block that the last `decode` used; these are whole records. */
  readonly consumed: number;
  /** True after a record later than `untilNs`, when the reader wants no more. */
  readonly isFinished: boolean;
  /** Returns output for the wire: the whole records in block[0, length). Damaged ones are left out and reported. */
  decode(block: Buffer, length: number): Buffer;
  /**
   * Takes a block of MAX_RECORD_BYTES in which `decode` found no end of a record. Returns how many of its first bytes
   * cannot belong to a record.
   */
  skip(block: Buffer): number;
}

/** Called with the number of bytes that are no record and were left out. */
export type OnDamage = (bytes: number) => void;

export interface RecordFormat {
  /** @param attrs extra members of each record; formats without any ignore them. */
  createEncoder(attrs: Readonly<Record<string, string>>): RecordEncoder;
  createDecoder(options: OutputOptions, onDamage: OnDamage): RecordDecoder;
  /** Returns where the last whole record ends. */
  findEnd(segment: Segment): Promise<number>;
  /** Returns where the last `count` records before `end` begin, and how many there are. Reads only these. */
  findTail(segment: Segment, end: number, count: number): Promise<{ readonly offset: number; readonly found: number }>;
  /** Returns the first whole record that begins in block[0, length). `isStart`: the block begins with a record. */
  firstRecord(
    block: Buffer,
    length: number,
    isStart: boolean,
  ): { readonly offset: number; readonly timeNs: bigint } | undefined;
}
