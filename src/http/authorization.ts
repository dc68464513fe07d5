/** How requests and replies look to authorization plugins. */
import { invalid, unavailable, type EngineError } from '../errors/engine-error.js';
import type { AuthorizationReply, AuthorizationRequest } from '../ports/authorization.js';
import type { Peer } from './peer.js';
import type { RequestBody } from './request-body.js';
import type { RequestHead } from './request-head.js';
import type { ReplyHead } from './response-head.js';

/**
 * The largest body that is held to be shown; a larger one is refused, because plugins would decide without having
 * seen what the handler gets.
 */
const MAX_SHOWN_BODY_BYTES = 4 * 1024 * 1024;

/** Limit for all bodies that plugins are being asked about, so that one that hangs does not fill the memory. */
const MAX_HELD_BYTES = 256 * 1024 * 1024;

let heldBytes = 0;

/**
 * Collects a body, and holds it until those who authorize have answered.
 * @param sizeBytes -1 for a chunked one.
 * @throws EngineError invalid with code BODY_TOO_LARGE; unavailable when too much is held already; what `ask` throws.
 */
export async function withShownBody(
  body: RequestBody,
  sizeBytes: number,
  ask: (bytes: Buffer) => Promise<void>,
): Promise<void> {
  if (sizeBytes > MAX_SHOWN_BODY_BYTES) throw tooLarge();
  let size = 0;
  const bytes = await body.collect((piece) => {
    size += piece.length;
    if (size > MAX_SHOWN_BODY_BYTES) throw tooLarge();
  });
  // Earlier it may be no more than a promise of the client, and such promises must not have others refused.
  if (heldBytes + size > MAX_HELD_BYTES) throw unavailable('too many requests wait for authorization plugins');
  heldBytes += size;
  try {
    await ask(bytes);
  } finally {
    heldBytes -= size;
  }
}

function tooLarge(): EngineError {
  return invalid(
    `request body is larger than ${MAX_SHOWN_BODY_BYTES} bytes, which is all that authorization plugins are shown`,
    { code: 'BODY_TOO_LARGE' },
  );
}

export function authorizationRequest(
  method: string,
  path: string,
  head: RequestHead,
  peer: Peer,
  body: Uint8Array | undefined,
): AuthorizationRequest {
  const headers = new Map<string, string>();
  // If a header is repeated the first one counts, for handlers too.
  head.forEach((name, value) => void (headers.has(name) || headers.set(name, value)));
  return {
    user: peer.kind === 'tls' ? peer.commonName : undefined,
    method,
    uri: shownUri(head, path),
    headers,
    body,
    peerCertificates: peer.kind === 'tls' ? peer.certificates : [],
  };
}

/**
 * Returns the path in one spelling, because plugins compare text: an escape such as `%63reate` would get around their
 * rules.
 * @param path resolved: decoded and without version.
 */
function shownUri(head: RequestHead, path: string): string {
  const [, version = ''] = /^(\/v[0-9.]+)\//.exec(decodeURIComponent(head.getUrl())) ?? [];
  const query = head.getQuery() ?? '';
  const escaped = encodeURI(path).replaceAll('?', '%3F').replaceAll('#', '%23');
  return `${version}${escaped}${query === '' ? '' : `?${query}`}`;
}

/** @param body undefined for a stream. */
export function authorizationReply(head: ReplyHead, body: string | Uint8Array | undefined): AuthorizationReply {
  const headers: Record<string, string> = {};
  for (const line of `${head.name}: ${head.value}`.split('\r\n')) {
    const colon = line.indexOf(': ');
    headers[line.slice(0, colon)] = line.slice(colon + 2);
  }
  const isShown = body !== undefined && headers['Content-Type'] === 'application/json';
  return { status: head.status, headers, body: isShown ? Buffer.from(body as string) : undefined };
}
