/** Writes one line of the log for each call that changes something: who asked for what, and what came of it. */
import type { Logger } from '../ports/logger.js';
import type { Peer } from './peer.js';
import { Query } from './query.js';
import { CLIENT_LEFT } from './request-observer.js';
import type { Route } from './route.js';

/** Parameters that name what a call is about. Others may hold secrets, as build arguments and URLs do. */
const SHOWN_PARAMETERS = [
  'name',
  'container',
  'fromImage',
  'repo',
  'tag',
  'platform',
  'force',
  'v',
  'link',
  'noprune',
  'signal',
  't',
  'condition',
  'path',
  'filters',
];

/** Longer texts are cut, so that clients with long paths cannot fill the log. */
const MAX_TEXT_LENGTH = 512;

export interface AuditedCall {
  readonly id: string;
  readonly peer: Peer;
  readonly method: string;
  /** Path of the request, decoded and without version. */
  readonly path: string;
  readonly query: string;
  readonly status: number;
  readonly seconds: number;
}

export class AuditLog {
  readonly #logger: Logger;
  readonly #enabled: () => boolean;

  /** @param enabled asked at each call, because a reload may change it. */
  constructor(logger: Logger, enabled: () => boolean) {
    this.#logger = logger;
    this.#enabled = enabled;
  }

  /** Returns true when calls of the route are to be recorded, as all are except plain reads. */
  covers(route: Route): boolean {
    return (route.hijack !== undefined || (route.method !== 'GET' && route.method !== 'HEAD')) && this.#enabled();
  }

  record({ id, peer, method, path, query, status, seconds }: AuditedCall): void {
    const parameters = shownParameters(query);
    const fields = {
      req: id,
      ...who(peer),
      method,
      path: shortened(path),
      ...(parameters === undefined ? {} : { query: parameters }),
      status,
      result: resultOf(status),
      dur_ms: Math.round(seconds * 1e6) / 1e3,
    };
    this.#logger.info(fields, 'audit');
  }
}

function who(peer: Peer): object {
  if (peer.kind === 'unix') return { uid: peer.uid, gid: peer.gid, client_pid: peer.pid };
  return peer.kind === 'tcp' ? { address: peer.address } : { address: peer.address, user: peer.commonName };
}

function shownParameters(text: string): Readonly<Record<string, string>> | undefined {
  if (text === '') return undefined;
  const query = new Query(text);
  try {
    query.has('');
  } catch {
    // The query is not well encoded: such a request was refused, as its line says.
    return undefined;
  }
  const shown = SHOWN_PARAMETERS.flatMap((name) => {
    return query.has(name) ? [[name, shortened(query.text(name))] as const] : [];
  });
  return shown.length === 0 ? undefined : Object.fromEntries(shown);
}

function shortened(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH)}…`;
}

function resultOf(status: number): string {
  if (status === CLIENT_LEFT) return 'client left';
  if (status < 400) return 'done';
  return status < 500 ? 'refused' : 'failed';
}
