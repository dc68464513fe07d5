/**
 * Names of bridges. They stand in rules and paths, where other characters have meanings: for iptables a final `+`, and
 * for nft a final `*`, stands for any other characters, so that the rules would be about the bridges of others too.
 */

/** IFNAMSIZ without the final NUL. */
const MAX_LENGTH = 15;

/** Returns what is wrong with the name of a bridge; undefined for a good one. */
export function bridgeNameProblem(name: string): string | undefined {
  if (name.length <= MAX_LENGTH && /^[\w.@+-]+$/.test(name) && !/\+$|^\.\.?$/.test(name)) return undefined;
  return (
    `invalid bridge name ${name}: it has 1 to ${MAX_LENGTH} letters, digits and any of '_', '.', '@', '-', '+', ` +
    "and does not end with '+'"
  );
}
