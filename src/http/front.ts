/** The HTTP front: routes, and the listeners that serve them. */
import type { Authorizer } from '../ports/authorization.js';
import type { KeptReplies } from '../ports/kept-replies.js';
import { NO_KEPT_SOCKETS, type KeptSockets } from '../ports/kept-sockets.js';
import type { Logger } from '../ports/logger.js';
import type { TerminateTls } from '../ports/tls-terminator.js';
import type { AccessPolicy } from './access-policy.js';
import type { AuditLog } from './audit.js';
import type { JsonParser } from './json-body.js';
import { listen, type Listener, type ListenSpec } from './listener.js';
import { ResponseHeads, type ProductIdentity } from './response-head.js';
import type { RequestObserver } from './request-observer.js';
import type { Route } from './route.js';
import { Router } from './router.js';
import { ConnectionPool } from './connection-pool.js';

export interface FrontOptions {
  readonly routes: readonly Route[];
  readonly product: ProductIdentity;
  readonly logger: Logger;
  readonly observer?: RequestObserver;
  /** Requests in flight at one listener, streams included, before further ones get 503. The default is 8192. */
  readonly maxInFlight?: number;
  /** May deny any routed request. */
  readonly authorizer?: Authorizer;
  readonly audit?: AuditLog;
  /** Has the replies of requests with an `Idempotency-Key`. */
  readonly keptReplies?: KeptReplies;
  /** Has the listening sockets of an earlier process, and keeps ours for the next one. */
  readonly keptSockets?: KeptSockets;
  /** Is needed by addresses with TLS. */
  readonly terminateTls?: TerminateTls;
  /** Parses large JSON bodies in another thread. */
  readonly jsonParser?: JsonParser;
}

export interface Front {
  /**
   * Starts to serve an address. @param policy what is served there; absent: everything.
   * @throws EngineError conflict when it is in use, invalid when it cannot be one, forbidden when it may not be used.
   */
  listen(spec: ListenSpec, policy?: AccessPolicy): Promise<Listener>;
}

/** Creates the front. @throws Error when routes contradict each other. */
export function createFront(options: FrontOptions): Front {
  const pool = new ConnectionPool({
    router: new Router(options.routes),
    heads: new ResponseHeads(options.product),
    logger: options.logger,
    ...(options.observer === undefined ? {} : { observer: options.observer }),
    ...(options.authorizer === undefined ? {} : { authorizer: options.authorizer }),
    ...(options.audit === undefined ? {} : { audit: options.audit }),
    ...(options.keptReplies === undefined ? {} : { keptReplies: options.keptReplies }),
    ...(options.jsonParser === undefined ? {} : { jsonParser: options.jsonParser }),
  });
  const { logger, maxInFlight = 8192, keptSockets = NO_KEPT_SOCKETS, terminateTls } = options;
  return {
    listen: (spec, policy) => listen(spec, { pool, logger, maxInFlight, policy, keptSockets, terminateTls }),
  };
}
