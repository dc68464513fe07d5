/** The container machine knows this: the record, who waits for what, and how far the life of the container is. */
import type { ExitStatus } from '../../ports/supervisor.js';
import type { RequestId } from '../kit/commands.js';
import type { StopInput } from './container.effects.types.js';
import type { AmendCommand, ContainerCommand, RemoveOptions, WaitCondition } from './container.messages.js';
import type { ContainerRecord } from './container.record.js';
import { NOTHING_TOLD, type ToldEvents } from './life/told.js';

/** An incarnation of the actor begins with this. */
export type ContainerInput =
  | { readonly phase: 'new' | 'idle' | 'removing'; readonly record: ContainerRecord }
  /** `isInPlace` is true when an earlier actor in the same daemon had started the task or taken it over. */
  | { readonly phase: 'running'; readonly record: ContainerRecord; readonly isInPlace?: boolean }
  /** The end of the run is settled already, or the run did not come about; what it held is not given back yet. */
  | { readonly phase: 'ended'; readonly record: ContainerRecord; readonly told?: ToldEvents }
  | {
      readonly phase: 'exited';
      readonly record: ContainerRecord;
      readonly exit: ExitStatus;
      readonly told?: ToldEvents;
    };

export interface Waiter {
  readonly req: RequestId;
  readonly condition: WaitCondition | 'exit';
}

export interface ContainerContext {
  readonly record: ContainerRecord;
  readonly phase: ContainerInput['phase'];
  readonly isInPlace: boolean;
  readonly waiters: readonly Waiter[];
  /** These requests wait for the start that is under way. */
  readonly starters: readonly RequestId[];
  /** These requests wait for the stop that is under way; those of a restart are here until its start. */
  readonly stoppers: readonly RequestId[];
  /** These requests wait for the pause or unpause that is under way. */
  readonly pausers: readonly RequestId[];
  /** These requests asked for a restart: after the exit they become starters. */
  readonly restarters: readonly RequestId[];
  readonly stop: StopInput | undefined;
  readonly removal: { readonly reqs: readonly RequestId[]; readonly options: RemoveOptions } | undefined;
  readonly postponed: readonly ContainerCommand[];
  /** These are the requested changes of the record in their order; the first is being written to disk. */
  readonly amends: readonly AmendCommand[];
  /** This exit was reported and is not settled yet. It can arrive before the reply to a start. */
  readonly exit: ExitStatus | undefined;
  /** An earlier daemon told these events of the run. */
  readonly told: ToldEvents;
  /** This counts how often the release of this run has failed. */
  readonly releases: number;
  readonly delayMs: number;
  /** A container that backs off is started again at this time, in milliseconds since 1970. */
  readonly restartsAt: number;
  /** The daemon is going down: no restart follows. */
  readonly leaving: boolean;
}

export function initialContext(input: ContainerInput): ContainerContext {
  const { record, phase } = input;
  const exit = phase === 'exited' ? input.exit : undefined;
  return {
    record,
    phase,
    isInPlace: phase === 'running' && input.isInPlace === true,
    waiters: [],
    starters: [],
    stoppers: [],
    pausers: [],
    restarters: [],
    stop: undefined,
    removal:
      phase === 'removing' ? { reqs: [], options: { force: true, volumes: record.hostConfig.AutoRemove } } : undefined,
    postponed: [],
    amends: [],
    exit,
    told: (phase === 'exited' || phase === 'ended' ? input.told : undefined) ?? NOTHING_TOLD,
    releases: 0,
    delayMs: 0,
    restartsAt: 0,
    leaving: false,
  };
}
