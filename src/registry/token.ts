/**
 * Gets bearer tokens of the distribution token specification, and what replaces them with other kinds of registries.
 */
import { unauthorized } from '../errors/engine-error.js';
import { type Challenge, parseChallenges } from './challenge.js';
import { basicAuthorization, type Credentials } from './credentials.js';
import type { Endpoint } from './endpoint.js';
import { statusError, transportError } from './failure.js';
import { type HttpRequest, readBody, type RequestOptions, sendRequest } from './http.js';
import { parseForeignJson } from '../text/foreign-json.js';

/** How a registry wants to be asked. */
export type AuthScheme =
  | { readonly kind: 'none' }
  | { readonly kind: 'basic' }
  | { readonly kind: 'bearer'; readonly realm: string; readonly service: string | undefined };

export interface Authorization {
  /** Value of the Authorization header; undefined if none is needed. */
  readonly header: string | undefined;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

const CLIENT_ID = 'engined';
const MAX_TOKEN_BYTES = 1 << 20;
const MIN_LIFETIME_S = 60;
/** A token is renewed this long before its end, so that it does not run out on the way. */
const MARGIN_MS = 5_000;

/**
 * Returns the scheme to use: bearer rather than basic, because token servers accept more than the registry's own
 * accounts.
 */
export function schemeOf(challenges: readonly Challenge[]): AuthScheme {
  const bearer = challenges.find(({ scheme }) => scheme === 'bearer');
  const realm = bearer?.parameters.get('realm');
  if (realm !== undefined) return { kind: 'bearer', realm, service: bearer?.parameters.get('service') };
  return challenges.some(({ scheme }) => scheme === 'basic') ? { kind: 'basic' } : { kind: 'none' };
}

export function schemeOfHeader(wwwAuthenticate: string | undefined): AuthScheme {
  return schemeOf(parseChallenges(wwwAuthenticate));
}

/** Returns `repository:library/alpine:pull`. */
export function pullScope(path: string): string {
  return `repository:${path}:pull`;
}

/**
 * Returns the scope for a push that also mounts layers of other repositories: `repository:a:pull,push
 * repository:b:pull`.
 */
export function pushScope(path: string, from: readonly string[] = []): string {
  return [`repository:${path}:pull,push`, ...from.map(pullScope)].join(' ');
}

/** The facts with which a token is asked for. */
export interface TokenRequest {
  readonly endpoint: Endpoint;
  readonly scheme: AuthScheme;
  /** Several scopes are separated by spaces. */
  readonly scope: string;
  readonly credentials: Credentials | undefined;
}

type BearerScheme = Extract<AuthScheme, { kind: 'bearer' }>;

/** A request without a scope asks for the token of a login. */
type BearerRequest = Omit<TokenRequest, 'scheme' | 'scope'> & {
  readonly scheme: BearerScheme;
  readonly scope?: string;
};

/**
 * Gets the authorization that the registry wants for a scope. Throws `unauthorized` when the credentials are refused or
 * missing, and the errors of failure.ts when the token server fails.
 */
export async function authorize(request: TokenRequest, options: RequestOptions): Promise<Authorization> {
  const { scheme, credentials, endpoint } = request;
  if (credentials?.registryToken !== undefined)
    return { header: `Bearer ${credentials.registryToken}`, expiresAt: Infinity };
  if (scheme.kind === 'none') return { header: undefined, expiresAt: Infinity };
  if (scheme.kind === 'basic') {
    const header = basicAuthorization(credentials);
    if (header === undefined)
      throw unauthorized(`Get "${endpoint.url}/v2/": no basic auth credentials`, { code: 'NO_CREDENTIALS' });
    return { header, expiresAt: Infinity };
  }
  return fetchToken({ ...request, scheme }, options);
}

/**
 * Gets the token of a login: it has no scope, and comes with one that replaces user name and password if the server
 * gives such a token.
 */
export async function fetchLoginToken(
  scheme: BearerScheme,
  credentials: Credentials | undefined,
  endpoint: Endpoint,
  options: RequestOptions,
): Promise<{ readonly header: string | undefined; readonly identityToken: string }> {
  const { header, identityToken } = await fetchToken({ scheme, credentials, endpoint }, options);
  return { header, identityToken: identityToken ?? '' };
}

async function fetchToken(
  wanted: BearerRequest,
  options: RequestOptions,
): Promise<Authorization & { readonly identityToken: string | undefined }> {
  const { credentials, endpoint } = wanted;
  const { realm } = wanted.scheme;
  const url = URL.canParse(realm) ? new URL(realm) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol))
    throw unauthorized(`invalid token server "${realm}"`, { code: 'BAD_REALM' });
  if (credentials && url.protocol === 'http:' && endpoint.url.startsWith('https:') && endpoint.tls.verify) {
    throw unauthorized(
      `the token server ${url.origin} of ${endpoint.url} is not secure: credentials are not sent to it`,
      { code: 'BAD_REALM' },
    );
  }
  const request = tokenRequest(url, wanted, options);
  const asked = Date.now();
  const response = await sendRequest(request);
  const body = await readBody(request, response, MAX_TOKEN_BYTES);
  if (response.statusCode !== 200) throw statusError(request, response, body);
  return parseToken(request, body, asked);
}

function tokenRequest(url: URL, wanted: BearerRequest, { limits, signal }: RequestOptions): HttpRequest {
  const { scheme, scope, credentials, endpoint } = wanted;
  const { service } = scheme;
  const common = { tls: endpoint.tls, limits, signal };
  const parameters = new URLSearchParams({
    ...(service === undefined ? {} : { service }),
    ...(scope === undefined ? {} : { scope }),
  });
  if (credentials?.identityToken !== undefined) {
    parameters.set('grant_type', 'refresh_token');
    parameters.set('refresh_token', credentials.identityToken);
    parameters.set('client_id', CLIENT_ID);
    return {
      ...common,
      method: 'POST',
      url: url.href,
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: parameters.toString(),
    };
  }
  const authorization = basicAuthorization(credentials);
  if (credentials?.username !== undefined) parameters.set('account', credentials.username);
  for (const [name, value] of parameters) if (name !== 'scope') url.searchParams.set(name, value);
  for (const one of scope?.split(' ') ?? []) url.searchParams.append('scope', one);
  if (scope === undefined) {
    url.searchParams.set('offline_token', 'true');
    url.searchParams.set('client_id', CLIENT_ID);
  }
  return {
    ...common,
    method: 'GET',
    url: url.href,
    ...(authorization === undefined ? {} : { headers: { authorization } }),
  };
}

function parseToken(
  request: HttpRequest,
  body: Buffer,
  asked: number,
): Authorization & { readonly identityToken: string | undefined } {
  let parsed: {
    token?: unknown;
    access_token?: unknown;
    refresh_token?: unknown;
    expires_in?: unknown;
    issued_at?: unknown;
  };
  try {
    parsed = parseForeignJson(body) ?? {};
  } catch (error) {
    throw transportError(request, error);
  }
  const token = [parsed.token, parsed.access_token].find((value) => typeof value === 'string' && value !== '');
  if (typeof token !== 'string' || /[^!-~]/.test(token))
    throw transportError(request, new Error('authorization server did not include a token in the response'));
  const lifetime = Math.max(typeof parsed.expires_in === 'number' ? parsed.expires_in : 0, MIN_LIFETIME_S);
  const issued = typeof parsed.issued_at === 'string' ? Date.parse(parsed.issued_at) : Number.NaN;
  // A server's clock that is ahead of ours must not lengthen the life of a token.
  const from = Number.isNaN(issued) ? asked : Math.min(issued, asked);
  const identityToken =
    typeof parsed.refresh_token === 'string' && parsed.refresh_token !== '' ? parsed.refresh_token : undefined;
  return { header: `Bearer ${token}`, expiresAt: from + lifetime * 1000 - MARGIN_MS, identityToken };
}
