/** Tables of which one adds to another. */
import { hasMembers } from './member-names.js';

type Table<T> = Record<string, T> | null | undefined;

/**
 * Returns the members of both; those of `over` replace others of their name. Nothing is copied where one has them all:
 * there may be thousands, so neither table may be changed afterwards.
 */
export function together<T>(under: Table<T>, over: Table<T>): Record<string, T> {
  if (!hasMembers(over)) return under ?? {};
  return hasMembers(under) ? { ...under, ...over } : over;
}
