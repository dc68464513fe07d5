/** Tells bytes that are compressed or encrypted from others, by how evenly the 256 values are distributed. */

/** The bytes may have this much more than even bytes would. Text has six times as much, programs twenty times. */
const MOST = 1.3;

/**
 * Whether all values are about equally frequent in `bytes`, which should be some thousands. Where they are not, the
 * bytes can be compressed; where they are, only a repetition can make them shorter.
 */
export function looksRandom(bytes: Buffer): boolean {
  const counts = new Uint16Array(256);
  for (const byte of bytes) counts[byte] = (counts[byte] ?? 0) + 1;
  let squares = 0;
  for (const count of counts) squares += count * count;
  // Even values give the square of the mean, 256 times; chance adds the rest.
  return squares < MOST * (bytes.length ** 2 / 256 + bytes.length);
}
