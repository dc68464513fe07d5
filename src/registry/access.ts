/** Contract of a session with a registry, which keeps tokens and limits. */
import type { Endpoint, RegistryHost } from './endpoint.js';
import { factsOf } from './failure.js';
import type { HttpLimits } from './http.js';

/** Where to send a request and what to present there. */
export interface Grant {
  readonly endpoint: Endpoint;
  /** Authorization header, undefined for anonymous access. */
  readonly authorization: string | undefined;
}

/** A grant that the registry refused. */
export interface Refusal {
  readonly grant: Grant;
  readonly error: unknown;
}

export interface RegistryAccess {
  readonly host: RegistryHost;
  readonly limits: HttpLimits;
  /**
   * Resolves with a grant for the scope, after any pause that the registry asked for. With `refusal`, the earlier grant
   * is replaced (401), or the registry's wish to wait is noted (429, 503). Rejects with the refusal's own error when
   * there is no better grant.
   */
  grant(scope: string, signal: AbortSignal, refusal?: Refusal): Promise<Grant>;
}

const MAX_ATTEMPTS = 5;

/** Runs a request with a grant, and again with a new one when the registry refuses it or asks to wait. */
export async function withGrant<T>(
  access: RegistryAccess,
  scope: string,
  signal: AbortSignal,
  run: (grant: Grant) => Promise<T>,
): Promise<T> {
  let grant = await access.grant(scope, signal);
  let renewals = 0;
  for (let attempt = 1; ; attempt++) {
    try {
      return await run(grant);
    } catch (error) {
      const { status } = factsOf(error);
      const mayWait = (status === 429 || status === 503) && attempt < MAX_ATTEMPTS;
      const mayRenew = status === 401 && renewals++ === 0;
      if (!mayWait && !mayRenew) throw error;
      grant = await access.grant(scope, signal, { grant, error });
    }
  }
}
