/**
 * The push of one name, shared by every client that asked for it.
 *
 *   pushing(wanted ──nobody left──► cancelling) ──► done | failed
 *      ▲                                │
 *      └────────── wanted again ────────┘
 *
 * Owner: the pushes collection, one actor per request. Invariants: a join is answered at once, as failures belong to
 * the progress of a push; the push ends when its last interested client leaves, and has cleaned up by then.
 */
import { assign, setup } from 'xstate';
import { isEngineError } from '../../errors/engine-error.js';
import type { RequestId } from '../kit/commands.js';
import { effect } from '../kit/effect.js';
import type { Replies } from '../kit/replies.js';
import type { ProgressBoard } from '../pull/progress-board.js';
import type { PushEvent, PushInput } from './push.messages.js';

export interface PushEffects {
  /** Uploads everything. Rejects with an EngineError after it has cleaned up. */
  push(push: PushInput): Promise<void>;
}

/** Quick calls; none of them throws. */
export interface PushHooks {
  /** Makes the effect that is under way reject with `cancelled`. */
  cancel(id: string): void;
  board(push: PushInput): ProgressBoard;
  /** Closes the board of an ended job, with the error that readers shall see. */
  close(id: string, error?: unknown): void;
}

interface PushContext {
  readonly push: PushInput;
  /** Joins that came while the push was being cancelled. */
  readonly joining: readonly RequestId[];
  /** Clients that read. */
  readonly interests: readonly RequestId[];
}

export function createPushMachine(effects: PushEffects, hooks: PushHooks, replies: Replies) {
  const without = (list: readonly RequestId[], event: PushEvent): RequestId[] =>
    list.filter(
      (one) =>
        one !== (event.type === 'push.left' ? event.interest : event.type === 'request.cancelled' ? event.req : -1),
    );

  return setup({
    types: { context: {} as PushContext, events: {} as PushEvent, input: {} as PushInput },
    actors: { push: effect<void, PushInput>((push) => effects.push(push)) },
    actions: {
      wait: assign(({ context, event }) =>
        event.type === 'push.join' ? { joining: [...context.joining, event.req] } : {},
      ),
      admit: assign(({ context, event }) => {
        const arriving = event.type === 'push.join' ? [event.req] : context.joining;
        const board = hooks.board(context.push);
        for (const req of arriving) replies.settle(req, { interest: req, board });
        return { joining: [], interests: [...context.interests, ...arriving] };
      }),
      leave: assign(({ context, event }) => ({
        joining: without(context.joining, event),
        interests: without(context.interests, event),
      })),
      cancel: ({ context }) => hooks.cancel(context.push.id),
      close: ({ context }) => hooks.close(context.push.id),
      fail: ({ context, event }) => hooks.close(context.push.id, (event as { readonly error?: unknown }).error),
    },
    guards: {
      isLast: ({ context, event }) => without([...context.joining, ...context.interests], event).length === 0,
      isWantedAgain: ({ context, event }) =>
        context.joining.length > 0 && isEngineError((event as { error?: unknown }).error, 'cancelled'),
    },
  }).createMachine({
    id: 'push',
    context: ({ input }) => ({ push: input, joining: [], interests: [] }),
    initial: 'pushing',
    on: {
      'push.left': { actions: 'leave' },
      'request.cancelled': { actions: 'leave' },
    },
    states: {
      pushing: {
        initial: 'wanted',
        invoke: {
          src: 'push',
          input: ({ context }) => context.push,
          onDone: { target: 'done', actions: ['admit', 'close'] },
          onError: [
            { guard: 'isWantedAgain', target: 'pushing', reenter: true, actions: ['close', 'admit'] },
            { target: 'failed', actions: ['admit', 'fail'] },
          ],
        },
        states: {
          wanted: {
            on: {
              'push.join': { actions: 'admit' },
              'push.left': [{ guard: 'isLast', target: 'cancelling', actions: 'leave' }, { actions: 'leave' }],
              'request.cancelled': [{ guard: 'isLast', target: 'cancelling', actions: 'leave' }, { actions: 'leave' }],
            },
          },
          cancelling: { entry: 'cancel', on: { 'push.join': { actions: 'wait' } } },
        },
      },
      done: { type: 'final' },
      failed: { type: 'final' },
    },
  });
}

export type PushMachine = ReturnType<typeof createPushMachine>;
