/** Parses WWW-Authenticate challenges (RFC 9110 section 11.6.1). */

export interface Challenge {
  /** In lower case: `bearer`, `basic`. */
  readonly scheme: string;
  /** The keys are names in lower case. */
  readonly parameters: ReadonlyMap<string, string>;
}

const TOKEN = /[!#$%&'*+\-.^_`|~0-9A-Za-z]+/y;
const QUOTED = /"((?:[^"\\]|\\.)*)"/y;

/** Parses a header that may hold several challenges. It stops at the first part that is none, and never throws. */
export function parseChallenges(header: string | undefined): Challenge[] {
  if (header === undefined) return [];
  const challenges: { scheme: string; parameters: Map<string, string> }[] = [];
  let at = 0;
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const match = pattern.exec(header);
    if (match) at = pattern.lastIndex;
    return match;
  };
  const skip = (pattern: RegExp): void => void take(pattern);

  while (at < header.length) {
    skip(/[\s,]*/y);
    const word = take(TOKEN)?.[0];
    if (word === undefined) break;
    skip(/[ \t]*/y);
    const current = challenges.at(-1);
    // A word that `=` follows is a parameter of the current challenge, else it opens the next one.
    if (current && header[at] === '=') {
      at++;
      skip(/[ \t]*/y);
      const quoted = take(QUOTED);
      const value = quoted ? (quoted[1] ?? '').replaceAll(/\\(.)/g, '$1') : take(TOKEN)?.[0];
      if (value === undefined) break;
      const name = word.toLowerCase();
      if (!current.parameters.has(name)) current.parameters.set(name, value);
    } else {
      challenges.push({ scheme: word.toLowerCase(), parameters: new Map() });
    }
  }
  return challenges;
}
