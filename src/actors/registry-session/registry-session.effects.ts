/** The I/O of registry sessions, over the registry driver. */
import { factsOf, insecureAdvice } from '../../registry/failure.js';
import { ping } from '../../registry/client.js';
import type { Credentials } from '../../registry/credentials.js';
import type { Endpoint, RegistryHost } from '../../registry/endpoint.js';
import type { HttpLimits } from '../../registry/http.js';
import { authorize, type Authorization, type AuthScheme } from '../../registry/token.js';
import { isEngineError } from '../../errors/engine-error.js';

/** The endpoint of a host that answered, and how it wants to be asked. */
export interface Place {
  readonly endpoint: Endpoint;
  readonly scheme: AuthScheme;
}

export interface AuthorizeInput extends Place {
  readonly scope: string;
  readonly credentials: Credentials | undefined;
}

export interface SessionEffects {
  /** Finds the endpoint to use. Throws the last endpoint's failure, with advice when the registry is not secure. */
  probe(host: RegistryHost, signal: AbortSignal): Promise<Place>;
  authorize(input: AuthorizeInput, signal: AbortSignal): Promise<Authorization>;
}

export function createSessionEffects(limits: HttpLimits, certsDir: () => string): SessionEffects {
  return {
    async probe(host, signal) {
      let failure: unknown;
      for (const endpoint of host.endpoints) {
        try {
          return { endpoint, scheme: await ping(endpoint, { limits, signal }) };
        } catch (error) {
          failure = error;
          // Any HTTP answer over TLS proves that the registry speaks it: plain HTTP would be a downgrade.
          if (signal.aborted || factsOf(error).status !== undefined) break;
        }
      }
      if (isEngineError(failure) && failure.code === 'REGISTRY_TLS' && !host.isInsecure) throw insecureAdvice(host.name, certsDir(), failure);
      throw failure;
    },
    authorize: ({ endpoint, scheme, scope, credentials }, signal) => authorize(scheme, scope, credentials, endpoint, limits, signal),
  };
}
