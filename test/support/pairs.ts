/** Names and values with an equals sign between them, as many flags have. */

export const PAIR = /^[^=]+=/;

/** Returns what stands before and after the first equals sign. */
export function split(pair: string): [string, string] {
  const at = pair.indexOf('=');
  return [pair.slice(0, at), pair.slice(at + 1)];
}
