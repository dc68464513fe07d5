/**
 * Reads JSON out of a request: checks the content type, limits the size for each route, and decides which thread parses
 * it.
 */
import { setImmediate } from 'node:timers/promises';
import { invalid } from '../errors/engine-error.js';
import { JsonScan, type JsonLimits } from '../text/json-scan.js';
import { parseScannedJson, type ScannedJson } from '../text/parse-json.js';
import type { RequestBody } from './request-body.js';
import type { Route } from './route.js';

/** Parses in another thread. @throws EngineError as `parseScannedJson`. */
export type JsonParser = (text: ScannedJson) => Promise<unknown>;

/** Characters that a media type and its parameters' names may have (RFC 9110, token). */
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const MEDIA_TYPE = new RegExp(
  `^\\s*(${TOKEN}(?:/${TOKEN})?)\\s*(?:;\\s*(?:${TOKEN}\\s*=\\s*(?:${TOKEN}|"(?:[^"\\\\]|\\\\.)*")\\s*)?)*$`,
);

/**
 * Checks the content type.
 * @throws EngineError invalid unless the header is `application/json`, with or without parameters.
 */
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

const KIB = 1024;
const MIB = 1024 * KIB;

/** Larger bodies than this are parsed in another thread. */
const LARGE_BYTES = 256 * KIB;

const DEFAULT_LIMITS: JsonLimits = { bytes: 4 * MIB, depth: 32, values: 20_000, members: 10_000 };
/** Limits for routes that take a few options. */
const SMALL_LIMITS: JsonLimits = { bytes: 256 * KIB, depth: 16, values: 2_000, members: 1_000 };
/**
 * Limits for a create request, which may publish a range of ports, and names each of them with its bindings: six
 * values for each of as many as an image may have. Other lists are shorter (config-limits.ts).
 */
const CONTAINER_LIMITS: JsonLimits = { bytes: 4 * MIB, depth: 32, values: 140_000, members: 20_000 };

/** Limits by the method and the pattern of a route. */
const LIMITS: ReadonlyMap<string, JsonLimits> = new Map([
  ['POST /containers/create', CONTAINER_LIMITS],
  ['POST /commit', CONTAINER_LIMITS],
  ['POST /containers/{name...}/exec', { bytes: 8 * MIB, depth: 16, values: 50_000, members: 20_000 }],
  ['POST /containers/{name...}/update', SMALL_LIMITS],
  ['POST /exec/{id}/start', SMALL_LIMITS],
  ['POST /networks/{name...}/connect', SMALL_LIMITS],
  ['POST /networks/{name...}/disconnect', SMALL_LIMITS],
  ['POST /auth', SMALL_LIMITS],
]);

/**
 * Returns the limits of a route. They are far above bodies of clients, and far below those that hold up other requests.
 */
export function jsonLimitsOf({ method, pattern }: Pick<Route, 'method' | 'pattern'>): JsonLimits {
  return LIMITS.get(`${method} ${pattern}`) ?? DEFAULT_LIMITS;
}

/**
 * Returns the value of a body. @param length is -1 when it is not known.
 * @param order `isShown`: others have seen the body, and must have read the same in it.
 * @throws EngineError invalid when the body is no JSON or beyond the limits of the route; and as `RequestBody.collect`.
 */
export async function readJson(
  body: RequestBody,
  length: number,
  route: Route,
  { parser, isShown }: { readonly parser: JsonParser | undefined; readonly isShown: boolean },
): Promise<unknown> {
  const scan = new JsonScan(jsonLimitsOf(route));
  if (length > 0) scan.expect(length);
  const bytes = length === 0 ? Buffer.alloc(0) : await body.collect((piece) => scan.take(piece));
  const { isEmpty, firstEnd, values } = scan;
  const text = { bytes, isEmpty, firstEnd, ...(isShown && { values }) };
  if (parser === undefined || bytes.length <= LARGE_BYTES) return parseScannedJson(text);
  const value = await parser(text);
  // Taking over such a value takes some milliseconds, as what is done with it will.
  await setImmediate();
  return value;
}
