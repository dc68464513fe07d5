/** Searches a registry's index: the one part of the first version of the protocol that is still used. */
import { internal, invalid } from '../errors/engine-error.js';
import type { CallOptions } from './client.js';
import { basicAuthorization, type Credentials } from './credentials.js';
import type { RegistryHost } from './endpoint.js';
import { statusError } from './failure.js';
import { readBody, type HttpRequest, sendRequest } from './http.js';
import { firstAnswer } from './probe.js';
import { parseForeignJson } from '../text/foreign-json.js';
import type { JsonLimits } from '../text/json-scan.js';

export interface SearchResult {
  readonly name: string;
  readonly description: string;
  readonly stars: number;
  readonly isOfficial: boolean;
}

export interface SearchTerm {
  /** The registry to ask: `docker.io` for the default one. */
  readonly domain: string;
  readonly text: string;
}

/** Clients ask for a hundred results at most, of some hundred bytes each. */
const LIMITS: JsonLimits = { bytes: 2 << 20, depth: 64, values: 20_000, members: 5000 };

/** Splits `host/term`. Throws `invalid` for a term with a scheme. */
export function parseSearchTerm(term: string): SearchTerm {
  if (term.includes('://'))
    throw invalid(`invalid repository name: repository name (${term}) should not contain a scheme`, {
      code: 'INVALID_TERM',
    });
  const slash = term.indexOf('/');
  const first = slash < 0 ? '' : term.slice(0, slash);
  const isHost = first === 'localhost' || /[.:]/.test(first);
  if (isHost && first !== 'docker.io' && first !== 'index.docker.io')
    return { domain: first, text: term.slice(slash + 1) };
  const text = isHost ? term.slice(slash + 1) : term;
  return { domain: 'docker.io', text: text.replace(/^library\//, '') };
}

/** Searches the index. Throws the registry's failures, with advice when it is not secure. */
export async function searchIndex(
  host: RegistryHost,
  { text, limit }: { readonly text: string; readonly limit: number },
  credentials: Credentials | undefined,
  certsDir: string,
  options: CallOptions,
): Promise<SearchResult[]> {
  const authorization = basicAuthorization(credentials);
  const query = new URLSearchParams({ q: text, n: String(limit) }).toString();
  return firstAnswer(host, certsDir, options, async (endpoint) => {
    const request: HttpRequest = {
      ...options,
      method: 'GET',
      url: `${endpoint.url}/v1/search?${query}`,
      tls: endpoint.tls,
      headers: { accept: 'application/json', ...(authorization === undefined ? {} : { authorization }) },
    };
    const response = await sendRequest(request);
    const body = await readBody(request, response, LIMITS.bytes);
    if (response.statusCode !== 200) throw statusError(request, response, body);
    return parseResults(body, host.name);
  });
}

function parseResults(body: Buffer, name: string): SearchResult[] {
  let parsed: { readonly results?: unknown } | null;
  try {
    parsed = parseForeignJson(body, LIMITS) as typeof parsed;
  } catch (error) {
    throw internal(`error decoding registry search results of ${name}`, { code: 'BAD_SEARCH_RESULT', cause: error });
  }
  const results = Array.isArray(parsed?.results)
    ? (parsed.results as (Readonly<Record<string, unknown>> | null)[])
    : [];
  return results.flatMap((one) => {
    if (typeof one?.['name'] !== 'string') return [];
    const { description, star_count: stars, is_official: isOfficial } = one;
    return [
      {
        name: one['name'],
        description: typeof description === 'string' ? description : '',
        stars: typeof stars === 'number' ? stars : 0,
        isOfficial: isOfficial === true,
      },
    ];
  });
}
