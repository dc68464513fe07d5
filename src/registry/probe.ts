/** Finds which of a host's endpoints answers, and how the registry there wants to be asked. */
import { invalid, isEngineError } from '../errors/engine-error.js';
import { type CallOptions, ping } from './client.js';
import type { Endpoint, RegistryHost } from './endpoint.js';
import { factsOf, insecureAdvice } from './failure.js';
import { sendRequest } from './http.js';
import type { AuthScheme } from './token.js';

/** The endpoint of a host that answered, and how it wants to be asked. */
export interface Place {
  readonly endpoint: Endpoint;
  readonly scheme: AuthScheme;
}

/**
 * Tries the endpoints in order. Throws the last one's failure, with advice when the registry is not secure, and
 * `invalid` for a registry that knows the first version of the protocol only.
 */
export async function probe(host: RegistryHost, certsDir: string, options: CallOptions): Promise<Place> {
  return firstAnswer(host, certsDir, options, async (endpoint) => {
    const { scheme, status } = await ping(endpoint, options);
    if (status === 404 && (await isLegacy(endpoint, options))) {
      throw invalid(
        `registry ${host.name} supports only the v1 protocol, which cannot be used for pull, push and login`,
        { code: 'REGISTRY_V1_ONLY' },
      );
    }
    return { endpoint, scheme };
  });
}

/**
 * Returns what `ask` makes of the first endpoint that answers. Any HTTP answer over TLS proves that the registry speaks
 * TLS; plain HTTP would then be a downgrade, and is not tried.
 */
export async function firstAnswer<T>(
  host: RegistryHost,
  certsDir: string,
  { signal }: CallOptions,
  ask: (endpoint: Endpoint) => Promise<T>,
): Promise<T> {
  let failure: unknown;
  for (const endpoint of host.endpoints) {
    try {
      return await ask(endpoint);
    } catch (error) {
      failure = error;
      if (signal?.aborted || factsOf(error).status !== undefined || isEngineError(error, 'invalid')) break;
    }
  }
  if (isEngineError(failure) && failure.code === 'REGISTRY_TLS' && !host.isInsecure)
    throw insecureAdvice(host.name, certsDir, failure);
  throw failure;
}

async function isLegacy(endpoint: Endpoint, options: CallOptions): Promise<boolean> {
  const response = await sendRequest({ ...options, method: 'GET', url: `${endpoint.url}/v1/_ping`, tls: endpoint.tls });
  response.resume();
  return response.statusCode === 200;
}
