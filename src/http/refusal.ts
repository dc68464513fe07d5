/** Replies to requests that reach no handler. */
import { MAX_API_VERSION, MIN_API_VERSION } from './api-version.js';
import { messageBody } from './error-status.js';
import type { Headers } from './exchange.js';
import type { Gate } from './gate.js';
import type { ExchangeServices } from './http-exchange.js';
import type { RequestHead } from './request-head.js';
import type { ReplyHead, ResponseHeads } from './response-head.js';
import type { Resolution, RouteMatch } from './router.js';
import type { Transport } from './transport.js';

export interface Refusal {
  readonly head: ReplyHead;
  readonly body: string | undefined;
}

/**
 * Returns the route of a request that may have a handler. Any other is answered, also when it cannot be told which it
 * is, and has none.
 */
export function admit(
  services: ExchangeServices,
  gate: Gate,
  transport: Pick<Transport, 'peer' | 'reply'>,
  { found, head }: { readonly found: Resolution; readonly head: RequestHead },
): RouteMatch | undefined {
  let refusal: Refusal;
  try {
    const objection = gate.objection(head, () => transport.peer);
    if (found.kind === 'route' && objection === undefined && !gate.full) return found;
    refusal = refuse(found, objection, head.getQuery(), services.heads);
  } catch (err) {
    services.logger.error({ err }, 'a request could not be served');
    refusal = { head: NOT_SERVED, body: messageBody(NOT_SERVED_MESSAGE) };
  }
  transport.reply(refusal.head, refusal.body);
  services.observer?.refused(refusal.head.status);
  return undefined;
}

/**
 * Replies to a request that is not served.
 * @param found what the router said; a route is refused because too many requests are in flight.
 * @param objection why the request may not even be looked at, if that is so.
 */
function refuse(
  found: Resolution,
  objection: string | undefined,
  query: string | undefined,
  heads: ResponseHeads,
): Refusal {
  if (objection !== undefined)
    return { head: heads.render(403, 'application/json', undefined), body: messageBody(objection) };
  switch (found.kind) {
    case 'options':
      return { head: heads.render(200, undefined, undefined), body: undefined };
    // The next three replies come before everything that adds headers.
    case 'not-found':
      return { head: jsonHead(404), body: messageBody('page not found') };
    case 'bad-path':
      return { head: jsonHead(400), body: messageBody('invalid URL escape in path') };
    case 'redirect': {
      const location = query === undefined || query === '' ? found.path : `${found.path}?${query}`;
      return { head: { status: 301, name: 'Location', value: location }, body: undefined };
    }
    case 'version-too-old': {
      const head = heads.renderRefusedVersion('text/plain; charset=utf-8', { 'X-Content-Type-Options': 'nosniff' });
      const message =
        `client version ${found.version} is too old. ` +
        `Minimum supported API version is ${MIN_API_VERSION.text}, please upgrade your client to a newer version\n`;
      return { head, body: message };
    }
    case 'version-too-new': {
      const advice = `Maximum supported API version is ${MAX_API_VERSION.text}`;
      const body = messageBody(`client version ${found.version} is too new. ${advice}`);
      return { head: heads.renderRefusedVersion('application/json', {}), body };
    }
    default:
      return {
        head: heads.render(503, 'application/json', RETRY),
        body: messageBody('too many requests are in flight'),
      };
  }
}

/** The reply to requests that failed before they had a handler. */
export const NOT_SERVED = jsonHead(500);
export const NOT_SERVED_MESSAGE = 'the request could not be served';

const RETRY: Headers = Object.freeze({ 'Retry-After': '1' });

function jsonHead(status: number): ReplyHead {
  return { status, name: 'Content-Type', value: 'application/json' };
}
