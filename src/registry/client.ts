/** Requests of the distribution API. Each function is one exchange and keeps no state; digests are verified here. */
import { createHash } from 'node:crypto';
import { dataLoss, messageOf } from '../errors/engine-error.js';
import { CONFIG_LIMITS } from '../ports/config-limits.js';
import type { Digest } from '../ports/storage.js';
import type { Grant } from './access.js';
import type { Endpoint } from './endpoint.js';
import { factsOf, statusError } from './failure.js';
import { type HttpRequest, readBody, type RequestOptions, sendRequest } from './http.js';
import { ACCEPTED_MANIFESTS } from './manifest.js';
import { type AuthScheme, schemeOfHeader } from './token.js';
import { parseForeignJson } from '../text/foreign-json.js';

export interface FetchedManifest {
  readonly bytes: Buffer;
  readonly digest: Digest;
  readonly mediaType: string | undefined;
}

/** Registries allow 4 MiB; a longer manifest would be an attack on memory. */
const MAX_MANIFEST_BYTES = 4 << 20;
const MAX_CONFIG_BYTES = CONFIG_LIMITS.bytes;
const MAX_ERROR_BYTES = 64 << 10;

export type CallOptions = RequestOptions;

/** Returns `sha256:<hex>` of the bytes. */
export function digestOf(bytes: Buffer): Digest {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** Asks for the API's base, to learn how the registry wants to be asked. Any answer but 429 and 5xx will do. */
export async function ping(
  endpoint: Endpoint,
  options: CallOptions,
): Promise<{ readonly scheme: AuthScheme; readonly status: number }> {
  const request: HttpRequest = { ...options, method: 'GET', url: `${endpoint.url}/v2/`, tls: endpoint.tls };
  const response = await sendRequest(request);
  const body = await readBody(request, response, MAX_ERROR_BYTES);
  const error = statusError(request, response, body);
  if (factsOf(error).retryable) throw error;
  const { statusCode: status = 0, headers } = response;
  return { status, scheme: status === 401 ? schemeOfHeader(headers['www-authenticate']) : { kind: 'none' } };
}

function requestOf(
  method: 'GET' | 'HEAD',
  grant: Grant,
  path: string,
  options: CallOptions,
  accept?: string,
): HttpRequest {
  const headers = {
    ...(accept === undefined ? {} : { accept }),
    ...(grant.authorization === undefined ? {} : { authorization: grant.authorization }),
  };
  return { ...options, method, url: `${grant.endpoint.url}/v2/${path}`, headers, tls: grant.endpoint.tls };
}

/** Returns the URL of a blob. */
export function blobUrl(endpoint: Endpoint, repository: string, digest: Digest): string {
  return `${endpoint.url}/v2/${repository}/blobs/${digest}`;
}

/**
 * Returns the digest that a tag names now. Undefined when the registry does not say (no such header, or any status but
 * 401 and 429, which reject): the manifest itself must then be fetched.
 */
export async function headManifest(
  grant: Grant,
  repository: string,
  reference: string,
  options: CallOptions,
): Promise<Digest | undefined> {
  const request = requestOf('HEAD', grant, `${repository}/manifests/${reference}`, options, ACCEPTED_MANIFESTS);
  const response = await sendRequest(request);
  response.resume();
  if (response.statusCode === 401 || response.statusCode === 429) throw statusError(request, response, Buffer.alloc(0));
  const digest = response.headers['docker-content-digest'];
  const isKnown = response.statusCode === 200 && typeof digest === 'string' && /^sha256:[a-f0-9]{64}$/.test(digest);
  return isKnown ? (digest as Digest) : undefined;
}

/**
 * Fetches a manifest by tag or digest. Throws `data-loss` when a digest was asked for and the bytes have another one.
 */
export async function getManifest(
  grant: Grant,
  repository: string,
  reference: string,
  options: CallOptions,
): Promise<FetchedManifest> {
  const request = requestOf('GET', grant, `${repository}/manifests/${reference}`, options, ACCEPTED_MANIFESTS);
  const response = await sendRequest(request);
  const bytes = await readBody(request, response, MAX_MANIFEST_BYTES);
  if (response.statusCode !== 200) throw statusError(request, response, bytes);
  const digest = digestOf(bytes);
  if (reference.startsWith('sha256:') && reference !== digest) {
    throw dataLoss(`manifest verification failed for digest ${reference}`, {
      code: 'DIGEST_MISMATCH',
      details: { actual: digest },
    });
  }
  return { bytes, digest, mediaType: response.headers['content-type'] };
}

/** Fetches a small blob (a config). Throws `data-loss` when size or digest are not those of its descriptor. */
export async function getBlob(
  grant: Grant,
  repository: string,
  descriptor: { readonly digest: Digest; readonly sizeBytes: number },
  options: CallOptions,
): Promise<Buffer> {
  const { digest, sizeBytes } = descriptor;
  if (sizeBytes > MAX_CONFIG_BYTES)
    throw dataLoss(`image configuration ${digest} is larger than ${MAX_CONFIG_BYTES} bytes`, { code: 'BAD_MANIFEST' });
  const request = requestOf('GET', grant, `${repository}/blobs/${digest}`, options);
  const response = await sendRequest(request);
  const bytes = await readBody(request, response, response.statusCode === 200 ? sizeBytes : MAX_ERROR_BYTES);
  if (response.statusCode !== 200) throw statusError(request, response, bytes);
  if (digestOf(bytes) !== digest)
    throw dataLoss(`image config verification failed for digest ${digest}`, { code: 'DIGEST_MISMATCH' });
  return bytes;
}

/** No repository that somebody would pull as a whole has nearly as many tags. */
const MAX_TAG_PAGES = 100;

/** Returns all tags of a repository, page by page. Throws not-found (`NAME_UNKNOWN`) for a missing repository. */
export async function listTags(grant: Grant, repository: string, options: CallOptions): Promise<string[]> {
  const tags: string[] = [];
  let path: string | undefined = `${repository}/tags/list`;
  for (let page = 0; path !== undefined && page < MAX_TAG_PAGES; page++) {
    const request = requestOf('GET', grant, path, options);
    const response = await sendRequest(request);
    const body = await readBody(request, response, MAX_MANIFEST_BYTES);
    if (response.statusCode !== 200) throw statusError(request, response, body);
    let parsed: { readonly tags?: unknown } | null;
    try {
      parsed = parseForeignJson(body) as typeof parsed;
    } catch (error) {
      throw dataLoss(`invalid list of tags: ${messageOf(error)}`, { code: 'BAD_TAG_LIST', cause: error });
    }
    if (Array.isArray(parsed?.tags)) tags.push(...parsed.tags.filter((tag) => typeof tag === 'string'));
    path = nextPage(response.headers.link, repository);
  }
  return tags;
}

const IS_NEXT = /^\s*;\s*rel="?next"?/;
/** Only this much of the text behind a link is looked at, including blanks. */
const MAX_RELATION_LENGTH = 100;

/**
 * Returns the address of the next page. Only the query of the link counts: the same registry is asked, whatever the
 * link says.
 */
function nextPage(link: string | string[] | undefined, repository: string): string | undefined {
  const text = String(link ?? '');
  for (let start = text.indexOf('<'); start >= 0; start = text.indexOf('<', start + 1)) {
    const end = text.indexOf('>', start);
    if (end < 0) return undefined;
    const query = text.indexOf('?', start);
    if (query >= 0 && query < end && IS_NEXT.test(text.slice(end + 1, end + MAX_RELATION_LENGTH)))
      return `${repository}/tags/list?${text.slice(query + 1, end)}`;
    start = end;
  }
  return undefined;
}
