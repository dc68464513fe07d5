/** Commands and events of a registry session. */
import type { Grant, Refusal } from '../../registry/access.js';
import type { Credentials } from '../../registry/credentials.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import type { Command, RequestCancelled } from '../kit/commands.js';

export interface SessionInput {
  readonly host: RegistryHost;
  readonly credentials: Credentials | undefined;
}

export type SessionCommand = Command<'session.grant', Grant> & {
  readonly scope: string;
  /** The grant that was used before and how it failed. */
  readonly refusal: Refusal | undefined;
};

export type SessionFact = { readonly type: 'silence.over' } | { readonly type: 'limit.idle' };

export type SessionEvent = SessionCommand | SessionFact | RequestCancelled;
