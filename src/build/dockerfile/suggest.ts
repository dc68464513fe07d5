/** Finds the word that was probably meant, for the messages of errors and checks. */

const MAX_DISTANCE = 2;

/**
 * Returns ` (did you mean X?)` or an empty text. The cost is the length of the text, which is not compared when it is
 * much longer than every option, times the lengths of the options.
 */
export function didYouMean(text: string, options: Iterable<string>, isCaseSensitive: boolean): string {
  const match = nearest(text, options, isCaseSensitive);
  return match === '' ? '' : ` (did you mean ${match}?)`;
}

/** Returns the nearest option, or an empty text when none is near or one is equal. */
export function nearest(text: string, options: Iterable<string>, isCaseSensitive: boolean): string {
  const wanted = isCaseSensitive ? text : text.toLowerCase();
  let match = '';
  let least = MAX_DISTANCE + 1;
  for (const option of options) {
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

/** How many characters have to be inserted, removed or replaced. */
function distanceOf(one: string, other: string): number {
  let previous = Array.from({ length: other.length + 1 }, (_, i) => i);
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = (previous[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1);
      row.push(Math.min(replaced, (previous[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1));
    }
    previous = row;
  }
  return previous[other.length] ?? 0;
}
