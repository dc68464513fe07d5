/** The directory of registry sessions: one per host and credentials, made when it is first asked for. */
import { createHash } from 'node:crypto';
import { unavailable } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import type { RegistryAccess } from '../../registry/access.js';
import { type Credentials, credentialsFor, credentialsKey } from '../../registry/credentials.js';
import { hostOf, hostsFor, type RegistryHost, type RegistryRules } from '../../registry/endpoint.js';
import type { HttpLimits } from '../../registry/http.js';
import type { Collection, CollectionEvent } from '../kit/collection.js';
import { ActorDirectory } from '../kit/directory.js';
import type { Replies } from '../kit/replies.js';
import type { SessionMachine } from './registry-session.machine.js';
import type { SessionCommand } from './registry-session.messages.js';

export interface SessionsDeps {
  readonly replies: Replies;
  readonly log: Logger;
  readonly limits: HttpLimits;
  /** Returns the rules of this moment: a reload counts for the next pull. */
  rules(): RegistryRules;
}

export class RegistrySessions {
  readonly #actors: ActorDirectory<SessionMachine, SessionCommand>;
  readonly #deps: SessionsDeps;

  constructor(deps: SessionsDeps, machine: SessionMachine) {
    this.#deps = deps;
    this.#actors = new ActorDirectory({
      kind: 'registry-session',
      logic: machine,
      replies: deps.replies,
      missing: () => unavailable('the registry sessions are not running', { code: 'NOT_RUNNING' }),
      onCrash: (id, error) => deps.log.error({ err: error, actor: id }, 'registry session crashed'),
    });
  }

  get collection(): Collection<SessionMachine> {
    return this.#actors.collection;
  }

  /** This must be called when the root actor runs: `send` takes spawn events to it. */
  connect(send: (event: CollectionEvent<SessionMachine>) => void): void {
    this.#actors.connect(send);
  }

  /**
   * Returns the ways to a domain's repositories in the order in which they are tried. Mirrors are asked anonymously,
   * because credentials belong to the registry itself.
   */
  async accessTo(domain: string, credentials: Credentials | undefined): Promise<RegistryAccess[]> {
    const hosts = await hostsFor(domain, this.#deps.rules());
    return hosts.map((host) => this.access(host, host.isMirror ? undefined : credentials));
  }

  /** Returns the way to the registry of a domain itself, for pushes and logins, which a mirror does not do. */
  async ownAccessTo(domain: string, credentials: Credentials | undefined): Promise<RegistryAccess> {
    return this.access(await hostOf(domain, 'registry', this.#deps.rules()), credentials);
  }

  /** Returns the way to one host; its session is made when it is first used. */
  access(host: RegistryHost, given: Credentials | undefined): RegistryAccess {
    const credentials = credentialsFor(host.name, given);
    // A changed rule (insecure, certificates) makes another host and with it another session.
    const endpoints = createHash('sha256').update(JSON.stringify(host.endpoints)).digest('hex').slice(0, 16);
    const id = `session.${host.name}.${endpoints}.${credentialsKey(credentials)}`;
    return {
      host,
      limits: this.#deps.limits,
      grant: (scope, signal, refusal) =>
        // If a session has just expired, a new one takes its place.
        this.#actors.ask(id, 'session.grant', { scope, refusal }, { signal, begin: () => ({ host, credentials }) }),
    };
  }
}
