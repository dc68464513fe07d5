/** The files of routes/ declare by this what they serve. */
import type { RetryKind } from '../ports/kept-replies.js';
import type { Exchange, Handler } from './exchange.js';

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';

/**
 * The moment at which the connection of a route that hijacks is taken back from the HTTP parser: after the whole body
 * (exec start has a JSON body), or after the head already when the body is chunked (attach, where such a body is the
 * stream).
 */
export type HijackPoint = 'after-body' | 'after-head';

/**
 * The kind of a request's body. Handlers get an `archive` as it comes, whatever its size. Authorization plugins are not
 * shown an `archive`, nor a `secret` and the reply to it; they are shown every other body.
 */
export type BodyKind = 'json' | 'archive' | 'secret';

/**
 * The part that a route has in uploads that are worth reading without the HTTP parser: its handler takes `bodySource`,
 * or clients ask for it before they send an upload on the same connection.
 */
export type UploadPart = 'takes' | 'precedes';

/** Says what a key of the request means; undefined: nothing. */
export type Retry = (x: Exchange) => RetryKind | undefined;

export interface Route {
  readonly method: Method;
  readonly pattern: string;
  readonly handler: Handler;
  readonly hijack: HijackPoint | undefined;
  readonly body: BodyKind;
  readonly upload: UploadPart | undefined;
  /** Absent on routes whose requests cannot be repeated under a key. */
  readonly retry: Retry | undefined;
  /**
   * True where a container, a plugin, a registry or the client decides how long a request takes, and not the daemon
   * alone: the daemon's end waits less for it.
   */
  readonly waitsForOthers: boolean;
}

/** The `retry` of a route whose requests are done once, and answered alike when they come again. */
export const ONCE: Retry = () => 'once';

/**
 * Declares a route. The pattern is a path without version prefix; `{name}` stands for one segment and `{name...}` for
 * one or more segments, as names of images may need. HEAD is served only where it is declared. When several patterns
 * match, one without parameters wins, then the one declared first.
 */
export function route(
  method: Method,
  pattern: string,
  handler: Handler,
  options: {
    readonly hijack?: HijackPoint;
    readonly body?: BodyKind;
    readonly upload?: UploadPart;
    readonly retry?: Retry;
    readonly waitsForOthers?: boolean;
  } = {},
): Route {
  const { hijack, body = 'json', upload, retry, waitsForOthers = body === 'archive' } = options;
  return { method, pattern, handler, hijack, body, upload, retry, waitsForOthers };
}
