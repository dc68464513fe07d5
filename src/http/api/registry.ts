/** Logins, searches and remote images as the Engine API writes them. */
import type { SearchSelection } from '../../actors/registry-session/queries.js';
import { ociPlatform } from '../../registry/manifest.js';
import { invalid } from '../../errors/engine-error.js';
import { credentialsOf, type Credentials } from '../../registry/credentials.js';
import type { RemoteImage } from '../../registry/inspect.js';
import type { SearchResult } from '../../registry/search.js';
import type { Filters } from './filters.js';

const SEARCH_FILTERS = ['is-official', 'is-automated', 'stars'];
const DEFAULT_LIMIT = 25;
const MAX_LIMIT = 100;

/**
 * Decodes the body of POST /auth; without an address the default registry is meant. Throws `invalid` unless it is an
 * object.
 */
export function decodeLogin(body: unknown): {
  readonly address: string;
  readonly credentials: Credentials | undefined;
} {
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw invalid('invalid auth configuration: it must be an object', { code: 'INVALID_AUTH' });
  const address: unknown = Object.entries(body).find(([key]) => key.toLowerCase() === 'serveraddress')?.[1] ?? '';
  if (typeof address !== 'string')
    throw invalid('invalid auth configuration: serveraddress must be a string', { code: 'INVALID_AUTH' });
  return { address, credentials: credentialsOf(body) };
}

/** Decodes the selection of GET /images/search. Throws `invalid` for unknown filters and bad values. */
export function decodeSearch(term: string, limit: number | undefined, filters: Filters): SearchSelection {
  filters.allow(SEARCH_FILTERS);
  const wanted = limit === undefined || limit === 0 ? DEFAULT_LIMIT : limit;
  if (wanted < 1 || wanted > MAX_LIMIT)
    throw invalid(`limit ${wanted} is outside the range of [1, ${MAX_LIMIT}]`, { code: 'INVALID_LIMIT' });
  const stars = filters.get('stars').map((text) => {
    if (!/^\d+$/.test(text)) throw invalid(`invalid filter 'stars=${text}'`, { code: 'INVALID_FILTER' });
    return Number(text);
  });
  // No image is built automatically any more, so a search for such images finds none.
  const minStars = filters.flag('is-automated') === true ? Infinity : Math.max(0, ...stars);
  return { term, limit: wanted, isOfficial: filters.flag('is-official'), minStars };
}

/** Renders one element of GET /images/search. */
export function searchJson({ name, description, stars, isOfficial }: SearchResult): Readonly<Record<string, unknown>> {
  return { star_count: stars, is_official: isOfficial, name, is_automated: false, description };
}

/** Renders GET /distribution/{name}/json. */
export function remoteJson({
  mediaType,
  digest,
  sizeBytes,
  platforms,
}: RemoteImage): Readonly<Record<string, unknown>> {
  return {
    Descriptor: { mediaType, digest, size: sizeBytes },
    Platforms: platforms.map(ociPlatform),
  };
}
