/**
 * Reads the head of a request without the HTTP parser. Header lines are split at an index: a pattern that describes the
 * whole line would try each way to divide a run of blanks, and a client chooses how long that run is.
 */

/** The last line end of a head, and the empty line after it. */
export const HEAD_END = '\r\n\r\n';

export interface RequestLine {
  readonly method: string;
  readonly path: string;
  readonly query: string | undefined;
}

/** Reads the first line of a head; returns undefined for anything but a plain request of HTTP 1.1. */
export function readRequestLine(head: string): RequestLine | undefined {
  return requestLine(/^([A-Z]+) (\/[!-~]*) HTTP\/1\.1(?:\r\n|$)/.exec(head));
}

/** Does the same for a plain request of HTTP 1.0. */
export function readOldRequestLine(head: string): RequestLine | undefined {
  return requestLine(/^([A-Z]+) (\/[!-~]*) HTTP\/1\.0(?:\r\n|$)/.exec(head));
}

function requestLine(found: RegExpExecArray | null): RequestLine | undefined {
  const [, method, target] = found ?? [];
  if (method === undefined || target === undefined) return undefined;
  const mark = target.indexOf('?');
  if (mark < 0) return { method, path: target, query: undefined };
  return { method, path: target.slice(0, mark), query: target.slice(mark + 1) };
}

/**
 * Returns false for bytes that can't become a well-formed head, whatever follows them. It may return true for some of
 * those, too; then the parser says so when the head is complete.
 */
export function mayBecomeHead(received: string): boolean {
  if (received === '\r') return true;
  if (!/^[A-Z]{1,7}(?: |$)/.test(received)) return false;
  const lines = received.split('\r\n');
  // The last line may lack the second half of its end.
  const last = lines.pop()?.replace(/\r$/, '') ?? '';
  return lines.every((line) => VALUE.test(line)) && VALUE.test(last);
}

/** The length of empty lines at the beginning: some clients send one behind a body, and HTTP has servers skip it. */
export function emptyLineBytes(received: string): number {
  let length = 0;
  while (received.startsWith('\r\n', length)) length += 2;
  return length;
}

/** Returns true when a carriage return is not half of the end of a line. The last byte may be the first half. */
export function hasBareReturn(head: string): boolean {
  for (let at = head.indexOf('\r'); at >= 0 && at + 1 < head.length; at = head.indexOf('\r', at + 2))
    if (head[at + 1] !== '\n') return true;
  return false;
}

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t -~\x80-\xff]*$/;

/** A head in which one of these names comes twice says two things about where it belongs or where its body ends. */
const ONCE: ReadonlySet<string> = new Set(['host', 'content-length', 'transfer-encoding']);

/**
 * Returns values by lower-case name; undefined when a line is not well formed, or comes twice where that is not
 * possible. Of others that come twice `addHeader` tells what counts.
 */
export function readHeaderLines(lines: readonly string[]): Map<string, string> | undefined {
  const headers = new Map<string, string>();
  for (const line of lines) {
    const colon = line.indexOf(':');
    if (colon < 0) return undefined;
    const name = line.slice(0, colon).toLowerCase();
    const value = withoutBlanks(line, colon + 1);
    if (!NAME.test(name) || !VALUE.test(value) || (ONCE.has(name) && headers.has(name))) return undefined;
    addHeader(headers, name, value);
  }
  return headers;
}

/**
 * Adds a header to others. The options of a connection are one list in all of its headers (RFC 9110, 5.3). Of any other
 * that comes twice the first one counts, as in Go's `Header.Get`.
 */
export function addHeader(headers: Map<string, string>, lowerCaseName: string, value: string): void {
  const first = headers.get(lowerCaseName);
  if (first === undefined) headers.set(lowerCaseName, value);
  else if (lowerCaseName === 'connection') headers.set(lowerCaseName, `${first}, ${value}`);
}

/** Returns the rest of a line from there on, without blanks and tabs at both ends. */
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
