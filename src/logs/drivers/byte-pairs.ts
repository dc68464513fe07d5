/** Tables over two bytes at once: half of the look-ups in the loops that all bytes of logs go through. */

/** Returns what tells of each pair, the first byte in the lower half, whether a table of 256 marks one of them. */
export function inPairs(marks: Uint8Array): Uint8Array {
  const pairs = new Uint8Array(1 << 16);
  for (let second = 0; second < 256; second++) {
    if (marks[second] === 0) pairs.set(marks, second << 8);
    else pairs.fill(1, second << 8, (second + 1) << 8);
  }
  return pairs;
}
