/** Finds the word that was probably meant, for the messages of errors and checks. */

const MAX_DISTANCE = 2;
const FAR = 1000;
/** Longer texts are no slips of a key, and nobody compares with more options. */
const MAX_LENGTH = 100;
const MAX_OPTIONS = 500;

/** Returns ` (did you mean X?)` or an empty text. */
export function didYouMean(text: string, options: Iterable<string>, isCaseSensitive: boolean): string {
  const match = nearest(text, options, isCaseSensitive);
  return match === '' ? '' : ` (did you mean ${match}?)`;
}

/** Returns those options that `nearest` looks at. */
export function firstOptions(options: Iterable<string>): string[] {
  const first: string[] = [];
  for (const option of options) {
    if (first.length === MAX_OPTIONS) break;
    first.push(option);
  }
  return first;
}

/** Returns the nearest option, or an empty text when none is near or one is equal. */
export function nearest(text: string, options: Iterable<string>, isCaseSensitive: boolean): string {
  const wanted = isCaseSensitive ? text : text.toLowerCase();
  if (wanted.length > MAX_LENGTH) return '';
  let match = '';
  let least = MAX_DISTANCE + 1;
  for (const option of firstOptions(options)) {
    const other = isCaseSensitive ? option : option.toLowerCase();
    if (other === wanted) return '';
    if (Math.abs(other.length - wanted.length) > MAX_DISTANCE) continue;
    const distance = distanceOf(wanted, other);
    if (distance >= least) continue;
    least = distance;
    match = isCaseSensitive ? other : inCaseOf(text, other);
  }
  return match;
}

function inCaseOf(example: string, text: string): string {
  return example === example.toUpperCase() && example !== example.toLowerCase() ? text.toUpperCase() : text;
}

/** How many characters have to be inserted, removed or replaced; only small distances are exact. */
function distanceOf(one: string, other: string): number {
  let previous = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (let i = 1; i <= one.length; i++) {
    const row: number[] = Array.from({ length: other.length + 1 }, () => FAR);
    row[0] = i;
    for (let j = Math.max(1, i - MAX_DISTANCE); j <= Math.min(other.length, i + MAX_DISTANCE); j++) {
      const replaced = (previous[j - 1] ?? FAR) + (one[i - 1] === other[j - 1] ? 0 : 1);
      row[j] = Math.min(replaced, (previous[j] ?? FAR) + 1, (row[j - 1] ?? FAR) + 1);
    }
    previous = row;
  }
  return previous[other.length] ?? FAR;
}
