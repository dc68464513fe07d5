/** Performs what the steps of a container ask for: views, events, replies, signals, writes in the background. */
import { isEngineError } from '../../errors/engine-error.js';
import type { RequestCancelled } from '../kit/commands.js';
import { inTime } from '../kit/pace.js';
import type { Replies } from '../kit/replies.js';
import type { ContainerEffects, ContainerHooks } from './container.effects.types.js';
import type { AmendOutcome } from './container.messages.js';
import type { ContainerRecord } from './container.record.js';
import { notRunning } from './life/refusals.js';
import type { ActParams } from './steps/step.js';

/** XState gives this to every action. */
interface ActScope {
  readonly self: { send(event: AmendOutcome | RequestCancelled): void };
}

export type ContainerActs = {
  readonly [K in keyof ActParams]: (scope: ActScope, params: ActParams[K]) => void;
};

export function containerActs(effects: ContainerEffects, hooks: ContainerHooks, replies: Replies): ContainerActs {
  return {
    publish: (_, { record }) => hooks.publish(record.id, record),
    withdraw: (_, { id }) => hooks.publish(id, undefined),
    emit: (_, { action, record, attributes }) => hooks.emit(action, record, attributes),
    settle: (_, { reqs, value }) => reqs.forEach((req) => replies.settle(req, value)),
    reject: (_, { reqs, error }) => reqs.forEach((req) => replies.reject(req, error)),
    saveLater: (_, { record }) => hooks.saveLater(record),
    settleWhenSaved: (_, { req, record }) => {
      replies.leaveToWork(req);
      inTime('save', effects.save(record)).then(
        () => replies.settle(req, undefined),
        (error: unknown) => replies.reject(req, error),
      );
    },
    writeAmend: ({ self }, { base, record }) => {
      inTime('save', effects.save(record)).then(
        () => self.send({ type: 'amend.saved', base, record }),
        (error: unknown) => self.send({ type: 'amend.failed', error }),
      );
    },
    confirmAmend: (_, { command, record }) => command.applied?.(record),
    sendSignal: ({ self }, { req, record, signal, wasTold, staysDown, waitsForExit }) => {
      // A container may end by the signal, and be removed, before it is known that the signal was sent.
      if (!waitsForExit) replies.leaveToWork(req);
      const saved = staysDown ? () => effects.save(record) : () => undefined;
      inTime('kill', Promise.all([hooks.kill(record, signal, wasTold), saved()])).then(
        () => waitsForExit || replies.settle(req, undefined),
        (error: unknown) => {
          self.send({ type: 'request.cancelled', req });
          replies.reject(req, killError(record, error));
        },
      );
    },
    partStreams: (_, { id }) => hooks.exited(id),
    endStreams: (_, { id }) => hooks.released(id),
    forget: (_, { id }) => hooks.forget(id),
    crash: (_, { error }) => {
      throw error;
    },
  };
}

function killError(record: ContainerRecord, error: unknown): unknown {
  return isEngineError(error, 'conflict') || isEngineError(error, 'not-found') ? notRunning(record) : error;
}
