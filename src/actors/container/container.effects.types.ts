/** The container machine needs these effects. The implementation over drivers is `container.effects.ts`. */

import type { ExitStatus } from '../../ports/supervisor.js';
import type { Pace } from '../kit/pace.js';
import type { ContainerRecord } from './container.record.js';
import type { RemoveOptions } from './container.messages.js';
import type { ToldEvents } from './life/told.js';
import type { NetworkChange } from './network/network-change.js';

/** The code of an error that says that a container has no task. */
export const TASK_GONE = 'TASK_GONE';

export interface StopInput {
  readonly record: ContainerRecord;
  readonly signal: number;
  /** SIGKILL follows at this time on the clock of `performance.now()`; Infinity: never. */
  readonly killAtMs: number;
}

export interface RemoveInput {
  readonly record: ContainerRecord;
  readonly options: RemoveOptions;
}

export interface ReleaseInput {
  readonly record: ContainerRecord;
  /** An earlier daemon told these events of the run. */
  readonly told: ToldEvents;
}

/**
 * The slow work of a container; exactly one state invokes each effect. All of them throw EngineErrors and undo what
 * they began, also when the signal aborts. `pace` is told of parts that may take any time.
 */
export interface ContainerEffects {
  /** Makes the writable layer, volumes and files, and writes the first record. */
  create(record: ContainerRecord, signal: AbortSignal, pace: Pace): Promise<ContainerRecord>;
  /** Brings the task up and returns the record of the running container. */
  start(record: ContainerRecord, signal: AbortSignal, pace: Pace): Promise<ContainerRecord>;
  /**
   * Takes over a task that survived the daemon, with its stdio, mounts and network. Where these are in place already it
   * only looks at the task.
   * @throws EngineError with the code TASK_GONE when there is no task.
   */
  adopt(input: { readonly record: ContainerRecord; readonly isInPlace: boolean }): Promise<ContainerRecord>;
  /**
   * Delivers the stop signal and, after the grace period, SIGKILL. The exit event normally ends this effect; it
   * resolves by itself when the supervisor knows of an exit that was never reported. Rejects when the container
   * outlives both signals.
   */
  stop(input: StopInput, signal: AbortSignal, pace: Pace): Promise<ExitStatus>;
  pause(record: ContainerRecord, signal: AbortSignal): Promise<void>;
  unpause(record: ContainerRecord): Promise<void>;
  /** Waits, up to a limit, until all output of a dead task is logged and the record that notes its stop is on disk. */
  drain(record: ContainerRecord): Promise<void>;
  /** Writes the record of the exit, then frees task, network and mounts. */
  release(input: ReleaseInput): Promise<ContainerRecord>;
  /** Deletes everything of the container; the record goes first, so that a crash cannot bring half of it back. */
  remove(input: RemoveInput, pace: Pace): Promise<void>;
  /** Changes the networks of a running container. */
  rewire(input: { readonly record: ContainerRecord; readonly change: NetworkChange }): Promise<ContainerRecord>;
  save(record: ContainerRecord): Promise<void>;
}

/** Quick calls that machines make from actions. None of them throws. */
export interface ContainerHooks {
  /** Replaces the record that readers see; undefined: the container is gone. */
  publish(id: string, record: ContainerRecord | undefined): void;
  emit(action: string, record: ContainerRecord, attributes?: Readonly<Record<string, string>>): void;
  /** Sends a signal, of which an earlier daemon may have told; the promise tells how it went. */
  kill(record: ContainerRecord, signal: number, wasTold: boolean): Promise<void>;
  /** This is called when the exit is published and the resources of the run are about to be freed. */
  exited(id: string): void;
  /**
   * This is called when the resources of the run are freed and that is published: attached clients get the end of their
   * streams now.
   */
  released(id: string): void;
  /** Removes the last of a container that is gone, when the events so far are on disk. A failure is logged. */
  forget(id: string): void;
  /**
   * Writes a record that readers see already, a moment later and after earlier writes of this container. A failure is
   * logged. It is for facts that containerd or the next health check can tell again after a crash, and for records
   * whose write is awaited elsewhere.
   */
  saveLater(record: ContainerRecord): void;
}
