/**
 * The header lines of a request whose head is read without the HTTP parser. They are split at an index: a pattern that
 * describes the whole line would try each way to divide a run of blanks, and a client chooses how long that run is.
 */

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t -~\x80-\xff]*$/;

/** Values by lower-case name; undefined when a line is not well formed or a name comes twice. */
export function readHeaderLines(lines: readonly string[]): Map<string, string> | undefined {
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon < 0) return undefined;
    const name = line.slice(0, colon).toLowerCase();
    const value = withoutBlanks(line, colon + 1);
    if (!NAME.test(name) || !VALUE.test(value) || headers.has(name)) return undefined;
    headers.set(name, value);
  }
  return headers;
}

/** The rest of a line from there on, without blanks and tabs at both ends. */
function withoutBlanks(line: string, from: number): string {
  let start = from;
  let end = line.length;
  while (start < end && isBlank(line.charCodeAt(start))) start++;
  while (end > start && isBlank(line.charCodeAt(end - 1))) end--;
  return line.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 0x20 || code === 0x09;
}
