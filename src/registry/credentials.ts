/** Reads the credentials that a client presents to a registry, from the X-Registry-Auth header. */
import { createHash } from 'node:crypto';

export interface Credentials {
  readonly username?: string;
  readonly password?: string;
  /** OAuth2 refresh token from an earlier login. */
  readonly identityToken?: string;
  /** Bearer token to be passed to the registry as it is. */
  readonly registryToken?: string;
  /**
   * The credentials are for this registry, as the client wrote it. If it is absent, they are for the registry that is
   * asked.
   */
  readonly serverAddress?: string;
}

/**
 * Reads an X-Registry-Auth header. Both base64 alphabets, with or without padding, are taken, because clients in the
 * wild send all of them; whatever cannot be read means anonymous access and never fails the request.
 */
export function decodeCredentials(header: string | undefined): Credentials | undefined {
  if (header === undefined || header === '') return undefined;
  let parsed: unknown;
  try {
    parsed = JSON.parse(Buffer.from(header.trim(), 'base64').toString('utf8'));
  } catch {
    return undefined; // anonymous, as said above
  }
  return credentialsOf(parsed);
}

/** Returns the known members of an auth configuration object; undefined when it has no credentials. */
export function credentialsOf(value: unknown): Credentials | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const member = (name: string): string | undefined => {
    const text: unknown = Object.entries(value).find(([key]) => key.toLowerCase() === name)?.[1];
    return typeof text === 'string' && text !== '' ? text : undefined;
  };
  const username = member('username');
  const password = member('password');
  const identityToken = member('identitytoken');
  const registryToken = member('registrytoken');
  const serverAddress = member('serveraddress');
  const credentials: Credentials = {
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    ...(identityToken === undefined ? {} : { identityToken }),
    ...(registryToken === undefined ? {} : { registryToken }),
  };
  if (Object.keys(credentials).length === 0) return undefined;
  return serverAddress === undefined ? credentials : { ...credentials, serverAddress };
}

/** The names under which clients know the default registry. */
const DEFAULT_NAMES = new Set(['docker.io', 'index.docker.io', 'registry-1.docker.io', 'registry.hub.docker.com']);

/** Returns the credentials that a registry may see: none if they are marked for another registry. */
export function credentialsFor(domain: string, credentials: Credentials | undefined): Credentials | undefined {
  if (credentials?.serverAddress === undefined) return credentials;
  const marked = domainOfAddress(credentials.serverAddress).toLowerCase();
  return (DEFAULT_NAMES.has(marked) ? 'docker.io' : marked) === domain.toLowerCase() ? credentials : undefined;
}

/** Returns the domain of a login's address, which may have a scheme and a path, or be the default registry's own. */
export function domainOfAddress(address: string): string {
  const host = address.replace(/^https?:\/\//i, '').replace(/\/.*$/s, '');
  return host === '' || host === 'index.docker.io' ? 'docker.io' : host;
}

/**
 * Returns a key that tells credentials apart without revealing them; equal credentials share sessions and pull jobs.
 */
export function credentialsKey(credentials: Credentials | undefined): string {
  if (!credentials) return 'anonymous';
  const { username, password, identityToken, registryToken, serverAddress } = credentials;
  return createHash('sha256')
    .update(JSON.stringify([username, password, identityToken, registryToken, serverAddress]))
    .digest('hex');
}

/** Returns `Basic …` if there is a user name or a password. */
export function basicAuthorization(credentials: Credentials | undefined): string | undefined {
  if (credentials?.username === undefined && credentials?.password === undefined) return undefined;
  return `Basic ${Buffer.from(`${credentials.username ?? ''}:${credentials.password ?? ''}`).toString('base64')}`;
}
