/** Tables of which one adds to another. */

type Table<T> = Record<string, T> | null | undefined;

/**
 * Returns the members of both; those of `over` replace others of their name. Nothing is copied where one has them all:
 * there may be thousands, so neither table may be changed afterwards.
 */
export function together<T>(under: Table<T>, over: Table<T>): Record<string, T> {
  if (isEmpty(over)) return under ?? {};
  return isEmpty(under) ? over : { ...under, ...over };
}

function isEmpty(members: object | null | undefined): members is null | undefined {
  for (const _name in members) return false;
  return true;
}
