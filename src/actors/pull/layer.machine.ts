/**
 * The transfer of one layer, shared by every pull that wants it.
 *
 *   transferring(wanted ──nobody left──► cancelling) ──► done | failed
 *         ▲                                   │
 *         └────────── wanted again ───────────┘
 *
 * Owner: the layers collection, one actor per chain ID. Invariants: one transfer of a chain ID at a time; each asker
 * gets its own reference on the layer together with the reply; a cancelled transfer has cleaned up before it ends.
 */
import { assign, setup } from 'xstate';
import { isEngineError } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import type { RequestId } from '../kit/commands.js';
import { effect } from '../kit/effect.js';
import type { Replies } from '../kit/replies.js';
import type { LayerEvent, LayerInput } from './pull.messages.js';

export interface LayerEffects {
  /** Fetches, extracts and commits the layer, and takes one reference on it. Rejects after it has cleaned up. */
  transfer(input: LayerInput): Promise<void>;
}

/** Quick calls; none of them throws. */
export interface LayerHooks {
  /** Makes the transfer reject with `cancelled`. */
  cancel(chainId: Digest): void;
  retain(chainId: Digest): void;
  /** Gives the transfer's own reference back. */
  release(chainId: Digest): void;
}

interface LayerContext {
  readonly input: LayerInput;
  readonly waiting: readonly RequestId[];
}

export function createLayerMachine(effects: LayerEffects, hooks: LayerHooks, replies: Replies) {
  return setup({
    types: { context: {} as LayerContext, events: {} as LayerEvent, input: {} as LayerInput },
    actors: { transfer: effect<void, LayerInput>((input) => effects.transfer(input)) },
    actions: {
      note: assign(({ context, event }) =>
        event.type === 'layer.join' ? { waiting: [...context.waiting, event.req] } : {},
      ),
      forget: assign(({ context, event }) => {
        return event.type === 'request.cancelled'
          ? { waiting: context.waiting.filter((req) => req !== event.req) }
          : {};
      }),
      cancel: ({ context }) => hooks.cancel(context.input.layer.chainId),
      handOver: ({ context }) => {
        const { chainId } = context.input.layer;
        for (const req of context.waiting) {
          hooks.retain(chainId);
          replies.settle(req, undefined);
        }
        hooks.release(chainId);
      },
    },
    guards: {
      isLast: ({ context, event }) =>
        event.type === 'request.cancelled' && context.waiting.every((req) => req === event.req),
      isWantedAgain: ({ context, event }) =>
        context.waiting.length > 0 && isEngineError((event as { error?: unknown }).error, 'cancelled'),
    },
  }).createMachine({
    id: 'layer',
    context: ({ input }) => ({ input, waiting: [] }),
    initial: 'transferring',
    on: {
      'layer.join': { actions: 'note' },
      'request.cancelled': { actions: 'forget' },
    },
    states: {
      transferring: {
        initial: 'wanted',
        invoke: {
          src: 'transfer',
          input: ({ context }) => context.input,
          onDone: { target: 'done', actions: 'handOver' },
          onError: [
            { guard: 'isWantedAgain', target: 'transferring', reenter: true },
            {
              target: 'failed',
              actions: ({ context, event }) => {
                for (const req of context.waiting) replies.reject(req, event.error);
              },
            },
          ],
        },
        states: {
          wanted: {
            on: {
              'request.cancelled': [
                { guard: 'isLast', target: 'cancelling', actions: 'forget' },
                { actions: 'forget' },
              ],
            },
          },
          cancelling: { entry: 'cancel' },
        },
      },
      done: { type: 'final' },
      failed: { type: 'final' },
    },
  });
}

export type LayerMachine = ReturnType<typeof createLayerMachine>;
