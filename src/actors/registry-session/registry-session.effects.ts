/** The I/O of registry sessions, over the registry driver. */
import type { Credentials } from '../../registry/credentials.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import type { HttpLimits } from '../../registry/http.js';
import { type Place, probe } from '../../registry/probe.js';
import { authorize, type Authorization } from '../../registry/token.js';

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
    probe: (host, signal) => probe(host, certsDir(), { limits, signal }),
    authorize: ({ endpoint, scheme, scope, credentials }, signal) =>
      authorize(scheme, scope, credentials, endpoint, limits, signal),
  };
}
