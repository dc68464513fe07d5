/** Questions to registries that belong to no pull and no push. */
import { type ImageReference, familiarName, familiarString } from '../../images/reference.js';
import type { RegistryAccess } from '../../registry/access.js';
import { type Credentials, credentialsFor, domainOfAddress } from '../../registry/credentials.js';
import { hostOf, type RegistryRules } from '../../registry/endpoint.js';
import type { HttpLimits } from '../../registry/http.js';
import { inspectRemote, type RemoteImage } from '../../registry/inspect.js';
import { login } from '../../registry/login.js';
import type { Platform } from '../../registry/platform.js';
import { type KnownConfig, type ResolvedImage, resolveImage } from '../../registry/resolve.js';
import { parseSearchTerm, searchIndex, type SearchResult } from '../../registry/search.js';
import type { RegistrySessions } from './sessions.js';

export interface SearchSelection {
  readonly term: string;
  readonly limit: number;
  /** Selects official images or the others; undefined: both. */
  readonly isOfficial: boolean | undefined;
  readonly minStars: number;
}

export class RegistryQueries {
  constructor(
    private readonly sessions: RegistrySessions,
    private readonly rules: () => RegistryRules,
    private readonly limits: HttpLimits,
  ) {}

  /** Checks credentials; resolves as `login` of registry/login.ts does. Never asks a mirror. */
  async login(address: string, credentials: Credentials | undefined, signal: AbortSignal): Promise<string> {
    const rules = this.rules();
    return login(await hostOf(domainOfAddress(address), 'registry', rules), credentials, rules.certsDir, {
      limits: this.limits,
      signal,
    });
  }

  async search(
    { term, limit, isOfficial, minStars }: SearchSelection,
    credentials: Credentials | undefined,
    signal: AbortSignal,
  ): Promise<SearchResult[]> {
    const { domain, text } = parseSearchTerm(term);
    const rules = this.rules();
    const shown = credentialsFor(domain, credentials);
    const found = await searchIndex(await hostOf(domain, 'index', rules), { text, limit }, shown, rules.certsDir, {
      limits: this.limits,
      signal,
    });
    return found.filter((one) => one.stars >= minStars && (isOfficial === undefined || one.isOfficial === isOfficial));
  }

  /** Describes an image from the first host that has it. */
  inspect(reference: ImageReference, credentials: Credentials | undefined, signal: AbortSignal): Promise<RemoteImage> {
    return this.#firstAnswer(reference, credentials, signal, (access) =>
      inspectRemote(access, reference.path, wantedOf(reference), familiarString(reference), signal),
    );
  }

  /** Resolves an image and its configuration at the first host that has it. */
  resolve(
    reference: ImageReference,
    platform: Platform | undefined,
    credentials: Credentials | undefined,
    known: KnownConfig,
    signal: AbortSignal,
  ): Promise<ResolvedImage> {
    const wanted = {
      repository: reference.path,
      reference: wantedOf(reference),
      platform,
      familiarName: familiarName(reference),
      familiarString: familiarString(reference),
    };
    return this.#firstAnswer(reference, credentials, signal, (access) => resolveImage(access, wanted, known, signal));
  }

  async #firstAnswer<T>(
    { domain }: ImageReference,
    credentials: Credentials | undefined,
    signal: AbortSignal,
    ask: (access: RegistryAccess) => Promise<T>,
  ): Promise<T> {
    let failure: unknown;
    for (const access of await this.sessions.accessTo(domain, credentials)) {
      try {
        return await ask(access);
      } catch (error) {
        failure = error;
        if (signal.aborted) break;
      }
    }
    throw failure;
  }
}

function wantedOf({ digest, tag }: ImageReference): string {
  return digest ?? tag ?? 'latest';
}
