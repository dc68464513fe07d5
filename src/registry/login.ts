/** Asks a registry whether it accepts credentials. */
import { internal, isEngineError, unauthorized } from '../errors/engine-error.js';
import type { CallOptions } from './client.js';
import { basicAuthorization, type Credentials } from './credentials.js';
import type { RegistryHost } from './endpoint.js';
import { readBody, type HttpRequest, sendRequest } from './http.js';
import { probe } from './probe.js';
import { fetchLoginToken } from './token.js';

const MAX_BODY_BYTES = 64 << 10;

/**
 * Resolves with the token that replaces the credentials from now on; '' when the registry gives none. Throws
 * `unauthorized` when they are refused, and the errors of probe.ts.
 */
export async function login(
  host: RegistryHost,
  credentials: Credentials | undefined,
  certsDir: string,
  options: CallOptions,
): Promise<string> {
  const { endpoint, scheme } = await probe(host, certsDir, options);
  const url = `${endpoint.url}/v2/`;
  let header = basicAuthorization(credentials);
  let identityToken = '';
  if (scheme.kind === 'bearer') {
    try {
      const token = await fetchLoginToken(scheme, credentials, endpoint, options);
      header = token.header;
      identityToken = token.identityToken;
    } catch (error) {
      if (!isEngineError(error, 'unauthorized')) throw error;
      throw unauthorized(`Get "${url}": ${error.message}`, { code: 'LOGIN_REFUSED', cause: error });
    }
  }
  const request: HttpRequest = {
    ...options,
    method: 'GET',
    url,
    tls: endpoint.tls,
    ...(header === undefined ? {} : { headers: { authorization: header } }),
  };
  const response = await sendRequest(request);
  await readBody(request, response, MAX_BODY_BYTES);
  const { statusCode = 0, statusMessage = '' } = response;
  // A registry without accounts accepts everybody.
  if (statusCode === 200) return identityToken;
  const message = `login attempt to ${url} failed with status: ${statusCode} ${statusMessage}`;
  throw statusCode === 401 || statusCode === 403
    ? unauthorized(message, { code: 'LOGIN_REFUSED' })
    : internal(message, { code: 'LOGIN_FAILED' });
}
