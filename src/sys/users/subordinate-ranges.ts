/** Reads the files subuid(5) and subgid(5): which ids of this host users may give to the users of containers. */
import { fields, parseId } from './accounts.js';

const MAX_ID = 2 ** 32 - 2;

/** Ids from `first` on, up to but without `end`. */
export interface Span {
  readonly first: number;
  readonly end: number;
}

/** A line of a file. */
export interface SubordinateRange extends Span {
  /** The name or the number of a user; in subgid(5) of a group, too. */
  readonly owner: string;
  /** As it is in the file, for messages. */
  readonly line: string;
}

export const span = (first: number, count: number): Span => ({ first, end: first + count });

export const overlap = (one: Span, other: Span): boolean => one.first < other.end && other.first < one.end;

/** The lines of a file whose text this is, in its order. One that is no range of ids holds none: see `isRange`. */
export function parseRanges(text: string): SubordinateRange[] {
  return fields(text).map((words) => {
    const [owner = '', first = '', count = ''] = words;
    return { owner, line: words.join(':'), ...span(parseId(first) ?? 0, parseId(count) ?? 0) };
  });
}

/** False for ids that cannot be, and for those of the host's root. */
export function isRange({ first, end }: Span): boolean {
  return first >= 1 && end > first && end - 1 <= MAX_ID;
}
