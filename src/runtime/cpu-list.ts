/** Parses lists of CPUs or memory nodes such as `0-3,6` (man 7 cpuset). */

/** No machine has nearly so many; a larger range would fill the memory, and is refused. */
const LIMIT = 8192;
/** Ranges may overlap, but a text that names so many CPUs is refused, because it is not meant as a list. */
const MAX_LISTED = 4 * LIMIT;

/** Returns the numbers of a list; undefined when the text is not one. */
export function parseCpuList(text: string): ReadonlySet<number> | undefined {
  const numbers = new Set<number>();
  let listed = 0;
  for (const part of text === '' ? [] : text.split(',')) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (!match) return undefined;
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first || last >= LIMIT) return undefined;
    listed += last - first + 1;
    if (listed > MAX_LISTED) return undefined;
    for (let number = first; number <= last; number++) numbers.add(number);
  }
  return numbers;
}
