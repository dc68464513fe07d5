/** Requests of the distribution API that write. Each function is one exchange and keeps no state. */
import type { IncomingMessage } from 'node:http';
import { internal } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import type { Grant } from './access.js';
import type { CallOptions } from './client.js';
import { statusError, transportError } from './failure.js';
import { type HttpRequest, identityFor, readBody, sendRequest, type TlsSettings } from './http.js';

const MAX_ERROR_BYTES = 64 << 10;

/** A base URL, `https://host/v2/<repository>/`, with the authorization for it. */
export interface RepositoryPlace {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsSettings;
}

export function placeOf({ endpoint, authorization }: Grant, repository: string): RepositoryPlace {
  return {
    url: `${endpoint.url}/v2/${repository}/`,
    headers: authorization === undefined ? {} : { authorization },
    tls: endpoint.tls,
  };
}

/** An upload that the registry has begun. Its URL changes with every request and is to be used once. */
export interface UploadState {
  readonly url: string;
  /** Bytes that the registry has. */
  readonly offset: number;
}

/** Returns the size of a blob in the repository; undefined when it is not there. */
export async function headBlob(
  place: RepositoryPlace,
  digest: Digest,
  options: CallOptions,
): Promise<number | undefined> {
  const request: HttpRequest = {
    ...options,
    method: 'HEAD',
    url: `${place.url}blobs/${digest}`,
    headers: place.headers,
    tls: place.tls,
  };
  const response = await sendRequest(request);
  response.resume();
  if (response.statusCode === 200) return Number(response.headers['content-length'] ?? 0);
  if (response.statusCode === 404) return undefined;
  throw statusError(request, response, Buffer.alloc(0));
}

/**
 * Begins an upload. With `mount`, the registry is asked to take the blob from another of its repositories instead; the
 * result is 'mounted' if it did.
 */
export async function startUpload(
  place: RepositoryPlace,
  options: CallOptions,
  mount?: { readonly digest: Digest; readonly from: string },
): Promise<UploadState | 'mounted'> {
  const query = mount ? `?${new URLSearchParams({ mount: mount.digest, from: mount.from }).toString()}` : '';
  const { response, request } = await exchange(
    { ...options, method: 'POST', url: `${place.url}blobs/uploads/${query}`, headers: place.headers, tls: place.tls },
    mount ? [201, 202] : [202],
  );
  return response.statusCode === 201 ? 'mounted' : stateOf(request, response);
}

/** Returns how much of an upload the registry has; undefined when it does not know it any more. */
export async function uploadState(
  place: RepositoryPlace,
  upload: UploadState,
  options: CallOptions,
): Promise<UploadState | undefined> {
  const { response, request } = await exchange(
    { ...options, method: 'GET', url: upload.url, ...identityAt(place, upload.url) },
    [202, 204, 404],
  );
  return response.statusCode === 404 ? undefined : stateOf(request, response, upload.url);
}

/**
 * Sends the next bytes of an upload. A buffer is sent with its range, as a chunk of a resumed upload; an iterable is
 * sent as one stream to the end of the blob.
 */
export async function sendChunk(
  place: RepositoryPlace,
  upload: UploadState,
  body: Buffer | AsyncIterable<Buffer>,
  options: CallOptions,
): Promise<UploadState> {
  const range = Buffer.isBuffer(body) ? { 'content-range': `${upload.offset}-${upload.offset + body.length - 1}` } : {};
  const { headers: own, tls } = identityAt(place, upload.url);
  const headers = { ...own, 'content-type': 'application/octet-stream', ...range };
  const { response, request } = await exchange(
    { ...options, method: 'PATCH', url: upload.url, headers, body, tls },
    [201, 202, 204],
  );
  return stateOf(request, response);
}

/** Ends an upload; `body` may be the whole blob in one request. The registry checks the digest. */
export async function finishUpload(
  place: RepositoryPlace,
  upload: UploadState,
  digest: Digest,
  options: CallOptions,
  body?: Buffer,
): Promise<void> {
  const url = new URL(upload.url);
  url.searchParams.set('digest', digest);
  const { headers: own, tls } = identityAt(place, upload.url);
  const headers = { ...own, 'content-type': 'application/octet-stream' };
  await exchange(
    { ...options, method: 'PUT', url: url.href, headers, body: body ?? Buffer.alloc(0), tls },
    [201, 202, 204],
  );
}

/** Tells the registry that an upload will not go on. */
export async function cancelUpload(place: RepositoryPlace, upload: UploadState, options: CallOptions): Promise<void> {
  await exchange(
    { ...options, method: 'DELETE', url: upload.url, ...identityAt(place, upload.url) },
    [200, 202, 204, 404],
  );
}

/** Stores a manifest under a tag or digest. */
export async function putManifest(
  place: RepositoryPlace,
  reference: string,
  manifest: { readonly bytes: Buffer; readonly mediaType: string },
  options: CallOptions,
): Promise<void> {
  const headers = { ...place.headers, 'content-type': manifest.mediaType };
  await exchange(
    {
      ...options,
      method: 'PUT',
      url: `${place.url}manifests/${reference}`,
      headers,
      body: manifest.bytes,
      tls: place.tls,
    },
    [200, 201, 202],
  );
}

async function exchange(
  request: HttpRequest,
  accepted: readonly number[],
): Promise<{ readonly request: HttpRequest; readonly response: IncomingMessage }> {
  const response = await sendRequest(request);
  const body = await readBody(request, response, MAX_ERROR_BYTES);
  if (!accepted.includes(response.statusCode ?? 0)) throw statusError(request, response, body);
  return { request, response };
}

/**
 * Returns where the next request of the upload goes. A registry may send it elsewhere; `identityAt` says with which
 * identity.
 */
function stateOf(request: HttpRequest, response: IncomingMessage, fallback?: string): UploadState {
  const location = response.headers.location ?? fallback;
  if (location === undefined)
    throw internal(`the registry did not say where to upload to (${request.method} ${new URL(request.url).pathname})`, {
      code: 'BAD_UPLOAD',
    });
  let url: URL;
  try {
    url = new URL(location, request.url);
  } catch (error) {
    throw transportError(request, error);
  }
  const end = /^(?:bytes=)?0-(\d+)$/.exec(response.headers.range ?? '')?.[1];
  // The range of an empty upload is 0 to 0, because there is no other way to write it.
  return { url: url.href, offset: end === undefined || end === '0' ? 0 : Number(end) + 1 };
}

const identityAt = (place: RepositoryPlace, url: string): ReturnType<typeof identityFor> =>
  identityFor(new URL(url), new URL(place.url), place);
