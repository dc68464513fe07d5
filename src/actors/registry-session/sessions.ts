/** The directory of registry sessions: one per host and credentials, made when first asked for. */
import { createHash } from 'node:crypto';
import { isEngineError, unavailable } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import type { Grant, RegistryAccess } from '../../registry/access.js';
import { type Credentials, credentialsFor, credentialsKey } from '../../registry/credentials.js';
import { hostsFor, registryOf, type RegistryHost, type RegistryRules } from '../../registry/endpoint.js';
import type { HttpLimits } from '../../registry/http.js';
import { type Collection, createCollection } from '../kit/collection.js';
import type { Replies } from '../kit/replies.js';
import type { SessionMachine } from './registry-session.machine.js';
import type { SessionCommand } from './registry-session.messages.js';

type Send = (event: Parameters<Collection<SessionMachine>['logic']['transition']>[1]) => void;

export interface SessionsDeps {
  readonly replies: Replies;
  readonly log: Logger;
  readonly limits: HttpLimits;
  /** Asked anew for every pull, so that a reload counts for the next one. */
  rules(): RegistryRules;
}

export class RegistrySessions {
  readonly collection: Collection<SessionMachine>;
  readonly #deps: SessionsDeps;
  #send: Send = () => undefined;

  constructor(deps: SessionsDeps, machine: SessionMachine) {
    this.#deps = deps;
    this.collection = createCollection({
      kind: 'registry-session',
      logic: machine,
      replies: deps.replies,
      onCrash: (id, error) => deps.log.error({ err: error, actor: id }, 'registry session crashed'),
    });
  }

  /** Called once the root actor runs: where spawn events go. */
  connect(send: Send): void {
    this.#send = send;
  }

  /**
   * The ways to a domain's repositories in the order in which they are tried. Mirrors are asked anonymously:
   * credentials belong to the registry itself.
   */
  async accessTo(domain: string, credentials: Credentials | undefined): Promise<RegistryAccess[]> {
    const hosts = await hostsFor(domain, this.#deps.rules());
    return hosts.map((host) => this.access(host, host.isMirror ? undefined : credentials));
  }

  /** The way to the registry of a domain itself, for what a mirror does not do: pushes and logins. */
  async ownAccessTo(domain: string, credentials: Credentials | undefined): Promise<RegistryAccess> {
    return this.access(await registryOf(domain, this.#deps.rules()), credentials);
  }

  /** The way to one host; its session is made when it is first used. */
  access(host: RegistryHost, given: Credentials | undefined): RegistryAccess {
    const credentials = credentialsFor(host.name, given);
    // A changed rule (insecure, certificates) makes another host and with it another session.
    const endpoints = createHash('sha256').update(JSON.stringify(host.endpoints)).digest('hex').slice(0, 16);
    const id = `session.${host.name}.${endpoints}.${credentialsKey(credentials)}`;
    return {
      host,
      limits: this.#deps.limits,
      grant: (scope, signal, refusal) =>
        this.#ask(id, { host, credentials }, { type: 'session.grant', scope, refusal }, signal),
    };
  }

  async #ask(
    id: string,
    input: { readonly host: RegistryHost; readonly credentials: Credentials | undefined },
    command: Omit<SessionCommand, 'req'>,
    signal: AbortSignal,
  ): Promise<Grant> {
    for (let attempt = 1; ; attempt++) {
      if (!this.collection.children.has(id)) this.#send({ type: 'collection.spawn', id, input });
      const actor = this.collection.children.get(id);
      if (!actor) throw unavailable('the registry sessions are not running', { code: 'NOT_RUNNING' });
      try {
        return await this.#deps.replies.ask<SessionCommand>(actor, command, signal);
      } catch (error) {
        // The session expired just now: the next one starts afresh.
        if (!isEngineError(error, 'unavailable') || error.code !== 'ACTOR_GONE' || attempt > 1) throw error;
      }
    }
  }
}
