/** Translates failures of registries, and of the way to them, into EngineErrors with the texts that clients know. */
import type { IncomingMessage } from 'node:http';
import {
  type EngineError,
  internal,
  isEngineError,
  messageOf,
  notFound,
  unauthorized,
  unavailable,
  invalid,
} from '../errors/engine-error.js';
import { parseChallenges } from './challenge.js';

/** Facts of a failed request, for callers that retry, authorise again or wait. They are in `EngineError.details`. */
export interface FailureFacts {
  /** HTTP status, when there was a response. */
  readonly status?: number;
  /** Code of the registry's error document: `MANIFEST_UNKNOWN`. */
  readonly registryCode?: string;
  readonly wwwAuthenticate?: string;
  /** The server asked for this delay by Retry-After. */
  readonly retryAfterMs?: number;
  /** The same request may succeed later. */
  readonly retryable?: boolean;
}

/** Returns the facts of an error from this file; nothing for any other error. */
export function factsOf(error: unknown): FailureFacts {
  return isEngineError(error) ? error.details : {};
}

interface Requested {
  readonly method: string;
  readonly url: string;
}

/**
 * Describes a request as `Get "https://host/path"`. The query and the authority are left out, because they may hold
 * signatures and credentials.
 */
export function describeRequest({ method, url }: Requested): string {
  const { protocol, host, pathname } = new URL(url);
  return `${method.charAt(0)}${method.slice(1).toLowerCase()} "${protocol}//${host}${pathname}"`;
}

export function timedOut(request: Requested, phase: string): EngineError {
  return internal(`${describeRequest(request)}: timeout while ${phase}`, {
    code: 'REGISTRY_TIMEOUT',
    details: { retryable: true },
  });
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connect: connection refused',
  ECONNRESET: 'connection reset by peer',
  EHOSTUNREACH: 'connect: no route to host',
  ENETUNREACH: 'connect: network is unreachable',
  ETIMEDOUT: 'connect: i/o timeout',
  EPIPE: 'broken pipe',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'temporary failure in name resolution',
  EPROTO: 'server gave HTTP response to HTTPS client',
};
const TLS_CODES = /^(CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_TLS_|ERR_SSL_)/;
const OUT_OF_TIME: ReadonlySet<string | undefined> = new Set(['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID']);

/** Makes the error for a failure of the network. EngineErrors pass unchanged. */
export function transportError(request: Requested, error: unknown): EngineError {
  if (isEngineError(error)) return error;
  const code = typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : '';
  const where = describeRequest(request);
  if (TLS_CODES.test(code)) {
    const message = `${where}: tls: failed to verify certificate: ${messageOf(error)}`;
    return internal(message, { code: 'REGISTRY_TLS', cause: error });
  }
  return internal(`${where}: ${unreached(error, REASONS[code] ?? messageOf(error))}`, {
    code: code === 'EPROTO' ? 'REGISTRY_TLS' : 'REGISTRY_UNREACHABLE',
    cause: error,
    details: { retryable: true },
  });
}

/** Says which address or name could not be reached, as Go does. */
function unreached(error: unknown, reason: string): string {
  // A name with several addresses fails with an error for each of them.
  const one: unknown = error instanceof AggregateError ? error.errors.at(-1) : error;
  if (typeof one !== 'object' || one === null) return reason;
  const { syscall, hostname, address, port } = one as Readonly<Record<string, unknown>>;
  if (syscall === 'getaddrinfo' && typeof hostname === 'string') return `dial tcp: lookup ${hostname}: ${reason}`;
  if (syscall !== 'connect' || typeof address !== 'string' || typeof port !== 'number') return reason;
  return `dial tcp ${address.includes(':') ? `[${address}]` : address}:${port}: ${reason}`;
}

/**
 * Names the address that would be asked next as its server wrote it: a path alone stays one.
 * @param request goes to that address. @param location the header that has led there.
 */
export function tooManyRedirects(request: Requested, location: string, count: number): EngineError {
  const described = describeRequest(request);
  const shown = URL.canParse(location) ? described : described.replace(new URL(request.url).origin, '');
  return internal(`${shown}: stopped after ${count} redirects`, {
    code: 'REGISTRY_UNREACHABLE',
    details: { retryable: true },
  });
}

/** Adds what the operator can do about a registry that was not declared insecure. */
export function insecureAdvice(domain: string, certsDir: string, error: EngineError): EngineError {
  const { code } = (error.cause ?? {}) as NodeJS.ErrnoException;
  // No CA makes a certificate valid at another time.
  const advice = OUT_OF_TIME.has(code)
    ? `Renew the certificate of the registry, or set the clock of this host, where it is ${new Date().toISOString()}`
    : `Secure the registry, put its CA certificate into ${certsDir}/${domain}/ca.crt, ` +
      `or start the daemon with --insecure-registry ${domain} if it serves plain HTTP or has an unknown CA`;
  return internal(`${error.message}. ${advice}`, { code: 'REGISTRY_NOT_SECURE', cause: error });
}

interface ErrorItem {
  readonly code: string;
  readonly message: string;
}

/** Token servers may send a document with `details` alone; the status then implies these codes. */
const IMPLIED_CODES: Readonly<Record<number, string>> = { 401: 'UNAUTHORIZED', 403: 'DENIED', 429: 'TOOMANYREQUESTS' };

function errorItem(status: number, body: Buffer): ErrorItem | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString('utf8'));
  } catch {
    return undefined; // proxies answer with HTML: the status alone decides
  }
  if (typeof parsed !== 'object' || parsed === null) return undefined;
  const errors = (parsed as { errors?: unknown }).errors;
  const first: unknown = Array.isArray(errors) ? errors[0] : parsed;
  if (typeof first !== 'object' || first === null) return undefined;
  const { code, message, details } = first as { code?: unknown; message?: unknown; details?: unknown };
  const text = typeof message === 'string' ? message : typeof details === 'string' ? details : '';
  if (typeof code !== 'string' && text === '') return undefined;
  return { code: typeof code === 'string' ? code : (IMPLIED_CODES[status] ?? 'UNKNOWN'), message: text };
}

/** Parses seconds or an HTTP date. */
export function retryAfterMs(header: string | undefined, now: number): number | undefined {
  if (header === undefined) return undefined;
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}

const words = (code: string): string => code.toLowerCase().replaceAll('_', ' ');

/**
 * Makes the error for a response whose status means failure. Kinds: 401 unauthorized, 404 not-found (also for denied
 * access, which must not reveal what exists), 429 and 503 unavailable, 400 invalid, the rest internal.
 */
export function statusError(request: Requested, response: IncomingMessage, body: Buffer): EngineError {
  const status = response.statusCode ?? 0;
  const wwwAuthenticate = response.headers['www-authenticate'];
  const item = deniedByScope(status, wwwAuthenticate) ?? errorItem(status, body);
  const message = item ? `${words(item.code)}: ${item.message}` : undefined;
  const waitMs = retryAfterMs(response.headers['retry-after'], Date.now());
  const details: FailureFacts = {
    status,
    ...(item ? { registryCode: item.code } : {}),
    ...(wwwAuthenticate === undefined ? {} : { wwwAuthenticate }),
    ...(waitMs === undefined ? {} : { retryAfterMs: waitMs }),
    retryable: status === 408 || status === 429 || status >= 500,
  };
  const options = { code: `REGISTRY_${status}`, details: { ...details } };
  const where = describeRequest(request);
  if (status === 401) return unauthorized(message ?? `${where}: unauthorized: authentication required`, options);
  if (status === 404) return notFound(message ?? `${where}: not found`, options);
  if (status === 429)
    return unavailable(message ?? 'toomanyrequests: the registry limits the rate of requests', options);
  if (status === 503)
    return unavailable(message ?? `${where}: received unexpected HTTP status: 503 Service Unavailable`, options);
  if (status === 400) return invalid(message ?? `${where}: received unexpected HTTP status: 400 Bad Request`, options);
  return internal(
    message ?? `received unexpected HTTP status: ${status} ${response.statusMessage ?? ''}`.trimEnd(),
    options,
  );
}

/** Tells whether a token lacks the scope: registries with token servers say "denied" in this way. */
function deniedByScope(status: number, wwwAuthenticate: string | undefined): ErrorItem | undefined {
  if (status !== 401) return undefined;
  const denied = parseChallenges(wwwAuthenticate).some(
    ({ parameters }) => parameters.get('error') === 'insufficient_scope',
  );
  return denied ? { code: 'DENIED', message: 'requested access to the resource is denied' } : undefined;
}
