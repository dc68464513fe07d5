/** Reading JSON out of a request (engine-api.md section 2, body decode). */
import { invalid, messageOf } from '../errors/engine-error.js';

/** Characters that a media type and its parameters' names may have (RFC 9110, token). */
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const MEDIA_TYPE = new RegExp(`^\\s*(${TOKEN}(?:/${TOKEN})?)\\s*(?:;\\s*(?:${TOKEN}\\s*=\\s*(?:${TOKEN}|"(?:[^"\\\\]|\\\\.)*")\\s*)?)*$`);

/** @throws EngineError invalid unless the header is `application/json`, with or without parameters. */
export function requireJsonType(header: string | undefined): void {
  const text = header ?? '';
  if (text.trim() === '') throw invalid('malformed Content-Type header (): mime: no media type', { code: 'BODY_TYPE' });
  const type = MEDIA_TYPE.exec(text)?.[1];
  if (type === undefined) {
    throw invalid(`malformed Content-Type header (${text}): mime: invalid media parameter`, { code: 'BODY_TYPE' });
  }
  if (type.toLowerCase() !== 'application/json') {
    throw invalid(`unsupported Content-Type header (${text}): must be 'application/json'`, { code: 'BODY_TYPE' });
  }
}

/** @throws EngineError invalid, saying whether there is nothing, something broken, or something after the JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    if (text.trim() === '') throw invalid('invalid JSON: got EOF while reading request body', { code: 'BODY_EMPTY', cause });
    if (startsWithJson(text)) throw invalid('unexpected content after JSON', { code: 'BODY_TRAILING', cause });
    throw invalid(`invalid JSON: ${messageOf(cause)}`, { code: 'BODY_JSON', cause });
  }
}

/** True when a complete value stands at the start of a text that as a whole is not JSON. */
function startsWithJson(text: string): boolean {
  const first = /^\s*(?:[{[]|"(?:[^"\\]|\\.)*"|[^\s{}[\]",:]+)/.exec(text);
  if (first === null) return false;
  const start = first[0].at(-1) === '{' || first[0].at(-1) === '[' ? first[0].length - 1 : undefined;
  const end = start === undefined ? first[0].length : endOfNesting(text, start);
  if (end === undefined || text.slice(end).trim() === '') return false;
  try {
    JSON.parse(text.slice(0, end));
    return true;
  } catch {
    // The value itself is broken, which is what the caller then reports.
    return false;
  }
}

/** Index after the bracket that closes the one at `start`, undefined when there is none. */
function endOfNesting(text: string, start: number): number | undefined {
  let depth = 0;
  const tokens = /"(?:[^"\\]|\\.)*"|[{}[\]]/g;
  tokens.lastIndex = start;
  for (let token = tokens.exec(text); token !== null; token = tokens.exec(text)) {
    if (token[0] === '{' || token[0] === '[') depth++;
    else if (token[0] === '}' || token[0] === ']') depth--;
    if (depth === 0) return tokens.lastIndex;
  }
  return undefined;
}
