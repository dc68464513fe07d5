/**
 * A step is what an event leads to: a change of what the machine knows, and acts, which are done afterwards in their
 * order. The functions of this folder compute steps and do nothing themselves, so that every transition of a container
 * can be looked at without a container. `container.acts.ts` performs the acts.
 */
import type { RequestId } from '../../kit/commands.js';
import type { ContainerContext } from '../container.context.js';
import type { AmendCommand } from '../container.messages.js';
import type { ContainerRecord } from '../container.record.js';

/** All that a container actor does to the world by itself, besides the effects that its states invoke. */
export interface ActParams {
  /** Readers see the record. */
  publish: { readonly record: ContainerRecord };
  /** Readers see no container with this id any more. */
  withdraw: { readonly id: string };
  emit: {
    readonly action: string;
    readonly record: ContainerRecord;
    readonly attributes?: Readonly<Record<string, string>>;
  };
  settle: { readonly reqs: readonly RequestId[]; readonly value?: unknown };
  reject: { readonly reqs: readonly RequestId[]; readonly error: unknown };
  saveLater: { readonly record: ContainerRecord };
  /** Answers when the record is on disk. */
  settleWhenSaved: { readonly req: RequestId; readonly record: ContainerRecord };
  /** Writes the changed record; the outcome comes as an event. */
  writeAmend: { readonly base: ContainerRecord; readonly record: ContainerRecord };
  /** The one who asked for the change hears that it is on disk, just before readers see it. */
  confirmAmend: { readonly command: AmendCommand; readonly record: ContainerRecord };
  sendSignal: SignalParams;
  /** The streams of the run are parted from those of the next one. */
  partStreams: { readonly id: string };
  /** Attached clients get the end of the streams that were parted. */
  endStreams: { readonly id: string };
  /** The removal was told, so nothing of the container is needed any more. */
  forget: { readonly id: string };
  /** The actor gives up; the next one begins with what it finds. */
  crash: { readonly error: unknown };
}

export interface SignalParams {
  readonly req: RequestId;
  readonly record: ContainerRecord;
  readonly signal: number;
  /** An earlier daemon told of this signal. */
  readonly wasTold: boolean;
  /** The container stays down after this signal, which has to be on disk before the answer. */
  readonly staysDown: boolean;
  /** The end of the container is the answer, unless the signal cannot be sent. */
  readonly waitsForExit: boolean;
}

export type Act = { [K in keyof ActParams]: { readonly type: K; readonly params: ActParams[K] } }[keyof ActParams];

export interface Step {
  readonly change?: Partial<ContainerContext>;
  readonly acts?: readonly Act[];
}

export const NOTHING: Step = {};

export function publish(record: ContainerRecord): Act {
  return { type: 'publish', params: { record } };
}

export function withdraw({ id }: ContainerRecord): Act {
  return { type: 'withdraw', params: { id } };
}

export function emit(action: string, record: ContainerRecord, attributes?: Readonly<Record<string, string>>): Act {
  return { type: 'emit', params: attributes ? { action, record, attributes } : { action, record } };
}

export function saveLater(record: ContainerRecord): Act {
  return { type: 'saveLater', params: { record } };
}

/** Returns no act when nobody has asked. */
export function settle(reqs: readonly RequestId[], value?: unknown): Act[] {
  return reqs.length > 0 ? [{ type: 'settle', params: { reqs, value } }] : [];
}

/** Returns no act when nobody has asked. */
export function reject(reqs: readonly RequestId[], error: unknown): Act[] {
  return reqs.length > 0 ? [{ type: 'reject', params: { reqs, error } }] : [];
}
