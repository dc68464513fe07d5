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
  readonly version: '1.0' | '1.1';
  /** The host of an absolute target, as clients send it to proxies: it counts in the place of the header. */
  readonly host: string | undefined;
}

/** Reads the first line of a head; returns undefined for anything but a plain request of HTTP 1.1. */
export function readRequestLine(head: string): RequestLine | undefined {
  const line = readAnyRequestLine(head);
  return line?.version === '1.1' ? line : undefined;
}

/** Reads the first line of a head of HTTP 1.1 or 1.0. */
export function readAnyRequestLine(head: string): RequestLine | undefined {
  const [, method, target, version] = /^([A-Z]+) ([!-~]+) HTTP\/(1\.[01])(?:\r\n|$)/.exec(head) ?? [];
  if (method === undefined || target === undefined || (version !== '1.0' && version !== '1.1')) return undefined;
  const absolute = target.startsWith('/') ? undefined : ABSOLUTE.exec(target);
  if (absolute === null) return undefined;
  const [, host, rest = ''] = absolute ?? ['', undefined, target];
  if (host !== undefined && !HOST.test(host)) return undefined;
  const mark = rest.indexOf('?');
  const [path, query] = mark < 0 ? [rest, undefined] : [rest.slice(0, mark), rest.slice(mark + 1)];
  return { method, path: path === '' ? '/' : path, query, version, host };
}

/** Returns true when the target of a request begins as a path. */
export function isOriginForm(head: string): boolean {
  return head[head.indexOf(' ') + 1] === '/';
}

/** A target with a scheme and perhaps a user: its host, and what is behind that. */
const ABSOLUTE = /^[A-Za-z][0-9A-Za-z+.-]*:\/\/(?:[^/?#@]*@)?([^/?#@]*)((?:[/?].*)?)$/;
const HOST = /^(?:[0-9A-Za-z!$&'()*+,;=._~-]*|\[[0-9A-Fa-f:.]+\])(?::\d*)?$/;

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

/** Reads the headers of a head whose first line is known; also undefined when HTTP 1.1 asks for more of them. */
export function readHeaders(head: string, { version, host }: RequestLine): Map<string, string> | undefined {
  const headers = readHeaderLines(head.split('\r\n').slice(1));
  if (headers === undefined || (version === '1.1' && !headers.has('host'))) return undefined;
  return host === undefined || host === '' ? headers : headers.set('host', host);
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
