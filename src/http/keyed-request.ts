/** Requests that clients repeat under one `Idempotency-Key`. */
import { createHash } from 'node:crypto';
import { invalid } from '../errors/engine-error.js';
import type { KeyedRequest, RetryKind } from '../ports/kept-replies.js';
import type { Peer } from './peer.js';
import type { RequestBody } from './request-body.js';

export const KEY_HEADER = 'idempotency-key';

/** A key is visible ASCII, with or without the quotes of RFC 8941. */
const KEY = /^[\x21-\x7e]{1,255}$/;

export interface KeyedParts {
  readonly kind: RetryKind;
  readonly key: string;
  readonly peer: Peer;
  readonly method: string;
  /** Decoded, without version. */
  readonly path: string;
  readonly version: string;
  /** As the client sent it. */
  readonly query: string;
}

/**
 * Reads the body, and returns it with what makes the request known again.
 * @param body undefined when there is none that says what to do.
 * @throws EngineError invalid for a bad key, or a body of more than `limitBytes`; and as `RequestBody.collect`.
 */
export async function keyedRequest(
  parts: KeyedParts,
  body: RequestBody | undefined,
  limitBytes: number,
): Promise<{ readonly request: KeyedRequest; readonly bytes: Buffer | undefined }> {
  if (!KEY.test(parts.key))
    throw invalid('invalid Idempotency-Key: 1 to 255 visible ASCII characters are needed', { code: 'INVALID_KEY' });
  const { kind, method, path, version, query } = parts;
  const hash = createHash('sha256').update(JSON.stringify([method, path, version, query]));
  let size = 0;
  const bytes = await body?.collect((piece) => {
    size += piece.length;
    if (size > limitBytes) throw invalid(`request body is larger than ${limitBytes} bytes`, { code: 'BODY_TOO_LARGE' });
    hash.update(piece);
  });
  const key = createHash('sha256')
    .update(JSON.stringify([scopeOf(parts.peer), parts.key]))
    .digest('base64');
  return { request: { key, fingerprint: hash.digest('base64'), kind }, bytes };
}

/** A key is valid for one user, so that nobody is shown what another one was answered. */
function scopeOf(peer: Peer): string {
  if (peer.kind === 'unix') return `uid ${peer.uid}`;
  return peer.kind === 'tls' ? `name ${peer.commonName ?? ''}` : '';
}
