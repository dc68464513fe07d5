/** Everything that can be said to a container actor. */
import type { Command, RequestCancelled, RequestId } from '../kit/commands.js';
import type { EffectHung } from '../kit/effect.js';
import type { ExitStatus } from '../../ports/supervisor.js';
import type { ProbeResult } from './life/health.js';
import type { ContainerRecord } from './container.record.js';
import type { NetworkChange } from './network/network-change.js';

export type WaitCondition = 'not-running' | 'next-exit' | 'removed';

export interface WaitResult {
  readonly exitCode: number;
  readonly error?: string;
}

export interface RemoveOptions {
  readonly force: boolean;
  /** Remove anonymous volumes too. */
  readonly volumes: boolean;
}

export interface StopOptions {
  /** Number of the signal; undefined: the container's own, else SIGTERM. */
  readonly signal?: number;
  /** Seconds until SIGKILL, -1 for never; undefined: the container's own, else 10. */
  readonly timeoutSeconds?: number;
}

export type ContainerCommand =
  /** This is answered in the next resting state: after a create, a stop or a release that is under way. */
  | Command<'container.settled', ContainerRecord>
  | Command<'container.start'>
  | (Command<'container.stop'> & { readonly options: StopOptions })
  /** The daemon's own shutdown stops the container: the restart policy brings it back at the next start. */
  | (Command<'container.shutdown'> & { readonly options: StopOptions })
  | (Command<'container.restart'> & { readonly options: StopOptions })
  /** `wasTold`: an earlier daemon had begun the same request, and told of the signal. */
  | (Command<'container.kill'> & { readonly signal: number; readonly wasTold?: boolean })
  | Command<'container.pause'>
  | Command<'container.unpause'>
  | (Command<'container.wait', WaitResult> & { readonly condition: WaitCondition })
  | (Command<'container.remove'> & { readonly options: RemoveOptions })
  /** Connects the container to a network or disconnects it. */
  | (Command<'container.rewire', ContainerRecord> & { readonly change: NetworkChange })
  | AmendCommand;

/**
 * Replaces parts of the record that clients may change at any time: name, restart policy, limits. `amend` is pure,
 * because it may be called more than once. `applied` is called when the changed record is on disk, just before readers
 * see it.
 */
export type AmendCommand = Command<'container.amend', ContainerRecord> & {
  readonly amend: (record: ContainerRecord) => ContainerRecord;
  readonly applied?: (record: ContainerRecord) => void;
};

/** How the write of the change under way ended: `record` was made from `base`. */
export type AmendOutcome =
  | { readonly type: 'amend.saved'; readonly base: ContainerRecord; readonly record: ContainerRecord }
  | { readonly type: 'amend.failed'; readonly error: unknown };

/** The supervisor and the health check report these facts. */
export type ContainerFact =
  | { readonly type: 'task.exited'; readonly exit: ExitStatus }
  | { readonly type: 'task.oom' }
  /** These also come unasked: from others who ask containerd, or after a signal that ends a paused container. */
  | { readonly type: 'task.paused' | 'task.resumed' }
  /** A probe has ended; it belongs to the run that began at `startedAt`. */
  | { readonly type: 'health.probed'; readonly startedAt: string; readonly result: ProbeResult };

/** A command has been postponed for as long as it may be. */
export interface PatienceOver {
  readonly type: 'patience.over';
  readonly req: RequestId;
}

export type ContainerEvent =
  | ContainerCommand
  | ContainerFact
  | AmendOutcome
  | PatienceOver
  | EffectHung
  | RequestCancelled;

/** Returns true for a command that must not wait for the work that it is meant to end. */
export function isForceful({
  type,
  options,
}: {
  readonly type: ContainerCommand['type'];
  readonly options?: StopOptions | RemoveOptions;
}): boolean {
  const isForced = options !== undefined && 'force' in options && options.force;
  return type === 'container.stop' || type === 'container.kill' || (type === 'container.remove' && isForced);
}
