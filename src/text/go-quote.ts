/** Texts as Go prints them, for records that clients compare: quoted strings, single characters and durations. */

const ESCAPES = new Map([
  ['\x07', '\\a'],
  ['\b', '\\b'],
  ['\f', '\\f'],
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
  ['\v', '\\v'],
  ['\\', '\\\\'],
]);
/** Letters, marks, numbers, punctuation, symbols, and the common space. */
const PRINTABLE = /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u;
const MAX_CODE_POINT = 0x10ffff;
const SURROGATES = { first: 0xd800, last: 0xdfff } as const;
const REPLACEMENT = '\ufffd';

/** Returns the text in double quotes. */
export function goQuote(text: string): string {
  return `"${Array.from(text, (char) => escaped(char, '"')).join('')}"`;
}

/** Returns a list such as `["a" "b"]`. */
export function goQuotedList(words: readonly string[]): string {
  return `[${words.map(goQuote).join(' ')}]`;
}

/** Returns the character of a number in single quotes. */
export function goQuoteCharacter(code: number): string {
  const isValid = code >= 0 && code <= MAX_CODE_POINT && (code < SURROGATES.first || code > SURROGATES.last);
  return `'${escaped(isValid ? String.fromCodePoint(code) : REPLACEMENT, "'")}'`;
}

function escaped(char: string, quote: string): string {
  if (char === quote) return `\\${char}`;
  const known = ESCAPES.get(char);
  if (known !== undefined) return known;
  if (PRINTABLE.test(char)) return char;
  const code = char.codePointAt(0) ?? 0;
  const hex = (digits: number): string => code.toString(16).padStart(digits, '0');
  if (code < 0x80) return `\\x${hex(2)}`;
  return code < 0x1_0000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
}

const NANOSECONDS = { us: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 } as const;

/** Returns a duration such as `1m30s`. @param nanoseconds not negative. */
export function goDuration(nanoseconds: number): string {
  if (nanoseconds === 0) return '0s';
  if (nanoseconds < NANOSECONDS.us) return `${nanoseconds}ns`;
  if (nanoseconds < NANOSECONDS.ms) return `${nanoseconds / NANOSECONDS.us}µs`;
  if (nanoseconds < NANOSECONDS.s) return `${nanoseconds / NANOSECONDS.ms}ms`;
  const hours = Math.floor(nanoseconds / NANOSECONDS.h);
  const minutes = Math.floor((nanoseconds % NANOSECONDS.h) / NANOSECONDS.m);
  const seconds = `${(nanoseconds % NANOSECONDS.m) / NANOSECONDS.s}s`;
  if (hours > 0) return `${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${minutes}m${seconds}` : seconds;
}

/** Returns a time as RFC 3339 has it, with no zeros at the end of its fraction. */
export function goTime(ms: number): string {
  return new Date(ms).toISOString().replace(/\.?0{1,3}Z$/, 'Z');
}
