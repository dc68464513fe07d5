/** Replies to requests that reach no handler (engine-api.md section 1). */
import { MAX_API_VERSION, MIN_API_VERSION } from './api-version.js';
import { messageBody } from './error-status.js';
import type { Headers } from './exchange.js';
import type { ResponseHeads } from './response-head.js';
import type { Resolution } from './router.js';
import type { ReplyHead } from './transport.js';

export interface Refusal {
  readonly head: ReplyHead;
  readonly body: string | undefined;
}

const JSON_TYPE: Headers = { 'Content-Type': 'application/json' };

/** @param found what the router said; a route is refused because too many requests are in flight. */
export function refuse(found: Resolution, query: string | undefined, heads: ResponseHeads): Refusal {
  switch (found.kind) {
    case 'options':
      return { head: { status: 200, server: heads.serverValue(undefined), headers: undefined }, body: undefined };
    case 'not-found':
      // Outside of everything that adds headers.
      return { head: { status: 404, server: undefined, headers: JSON_TYPE }, body: messageBody('page not found') };
    case 'bad-path':
      return { head: { status: 400, server: undefined, headers: JSON_TYPE }, body: messageBody('invalid URL escape in path') };
    case 'redirect': {
      const location = query === undefined || query === '' ? found.path : `${found.path}?${query}`;
      return { head: { status: 301, server: undefined, headers: { Location: location } }, body: undefined };
    }
    case 'version-too-old': {
      const server = heads.refusedVersionValue('text/plain; charset=utf-8');
      const message = `client version ${found.version} is too old. Minimum supported API version is ${MIN_API_VERSION.text}, please upgrade your client to a newer version`;
      return { head: { status: 400, server, headers: { 'X-Content-Type-Options': 'nosniff' } }, body: `${message}\n` };
    }
    case 'version-too-new': {
      const message = `client version ${found.version} is too new. Maximum supported API version is ${MAX_API_VERSION.text}`;
      return { head: { status: 400, server: heads.refusedVersionValue('application/json'), headers: undefined }, body: messageBody(message) };
    }
    default: {
      const head = { status: 503, server: heads.serverValue('application/json'), headers: { 'Retry-After': '1' } };
      return { head, body: messageBody('too many requests are in flight') };
    }
  }
}
