/**
 * Requests that are read without the HTTP parser, when they come first on their connection. Requests that hijack: the
 * parser would take what the client sent right behind for another request. Uploads: another thread reads them. Requests
 * with a body in chunks, whatever their method: the parser is too lenient with them.
 */
import type { StatedBody } from './framing.js';
import type { Gate } from './gate.js';
import { HEAD_END, readHeaders, readRequestLine } from './header-lines.js';
import type { Peer } from './peer.js';
import { KeptHead } from './request-head.js';
import type { RouteMatch, Router } from './router.js';

/** The largest body before a hijack; exec start has a few dozen bytes. */
export const MAX_HIJACK_BODY_BYTES = 1024 * 1024;

export interface DirectRequest {
  readonly found: RouteMatch;
  readonly head: KeptHead;
  readonly headBytes: number;
  /** The length of the body; undefined when it comes in chunks. */
  readonly bodyBytes: number | undefined;
}

/**
 * Reads the head of such a request, from its text without the empty line. Returns undefined for everything else and for
 * whatever is unusual or wrong: the parser of all other requests decides about that.
 * @param body as `statedBody` has it.
 */
export function readDirectRequest(
  text: string,
  body: StatedBody,
  router: Router,
  gate: Gate,
  peer: () => Peer,
): DirectRequest | undefined {
  const isUsual = text.startsWith('POST ') || text.startsWith('PUT ');
  // A reply to HEAD has no body, which only the others know.
  if (!isUsual && (body !== 'open' || text.startsWith('HEAD '))) return undefined;
  const line = readRequestLine(text);
  if (line === undefined) return undefined;
  const found = gate.resolve(router, line.method, line.path);
  if (found.kind !== 'route') return undefined;
  const isPlain = found.route.hijack === undefined && found.route.upload !== 'takes';
  if (isPlain ? body !== 'open' : !isUsual) return undefined;

  const headers = readHeaders(text, line);
  if (headers === undefined || headers.has('expect')) return undefined;
  const length = headers.get('content-length');
  if (length !== undefined && !/^\d{1,15}$/.test(length)) return undefined;
  const encoding = headers.get('transfer-encoding');
  if (found.route.hijack !== undefined) {
    if (encoding !== undefined || Number(length ?? 0) > MAX_HIJACK_BODY_BYTES) return undefined;
  } else {
    const isChunked = encoding?.toLowerCase() === 'chunked';
    // The head must tell exactly once where the body ends.
    if (gate.full || (encoding !== undefined && !isChunked) || isChunked === (length !== undefined) || length === '0')
      return undefined;
    if (isPlain && !isChunked) return undefined;
  }
  const head = new KeptHead(headers, line.path, line.query);
  if (gate.objection(head, peer) !== undefined) return undefined;
  return {
    found,
    head,
    headBytes: text.length + HEAD_END.length,
    bodyBytes: encoding === undefined ? Number(length ?? 0) : undefined,
  };
}
