import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor } from 'xstate';
import { cancelled, internal, isEngineError, notFound } from '../../errors/engine-error.js';
import { parseReference } from '../../images/reference.js';
import { Replies } from '../kit/replies.js';
import { createLayerMachine } from './layer.machine.js';
import type { PullProgress } from './pull-progress.js';
import { createPullMachine } from './pull.machine.js';
import type { LayerCommand, LayerInput, LocatedImage, PullCommand, PullInput } from './pull.messages.js';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** An effect that the test settles. */
function gate<T>(): { readonly calls: { resolve(value: T): void; reject(error: unknown): void }[]; run(): Promise<T> } {
  const calls: { resolve(value: T): void; reject(error: unknown): void }[] = [];
  return { calls, run: () => new Promise<T>((resolve, reject) => calls.push({ resolve, reject })) };
}

function startPull() {
  const replies = new Replies();
  const resolve = gate<LocatedImage>();
  const fetch = gate<void>();
  const register = gate<void>();
  const log: string[] = [];
  const progress = {} as PullProgress;
  const machine = createPullMachine(
    { resolve: () => resolve.run(), fetch: () => fetch.run(), register: () => register.run() },
    {
      cancel: () => void log.push('cancel'),
      progress: () => progress,
      close: (_, error) => void log.push(error === undefined ? 'close' : `close ${(error as Error).message}`),
    },
    replies,
  );
  const input: PullInput = { id: 'p', reference: parseReference('a'), platform: undefined, credentials: undefined };
  const actor = createActor(machine, { input }).start();
  actor.subscribe({ error: () => undefined, complete: () => replies.actorEnded(actor) });
  const join = (signal?: AbortSignal) => replies.ask<PullCommand>(actor, { type: 'pull.join' }, signal);
  return { actor, join, resolve, fetch, register, log, state: () => JSON.stringify(actor.getSnapshot().value) };
}

const located = { image: {}, hosts: [] } as unknown as LocatedImage;

test('joins before and after the resolution are answered, and the pull runs to its end', async () => {
  const pull = startPull();
  const joins = [pull.join(), pull.join()];
  pull.resolve.calls[0]?.resolve(located);
  const answers = await Promise.all(joins);
  assert.equal(new Set(answers.map(({ interest }) => interest)).size, 2);
  await pull.join();
  pull.fetch.calls[0]?.resolve();
  await turn();
  await pull.join();
  pull.register.calls[0]?.resolve();
  await turn();
  assert.equal(pull.state(), '"done"');
  assert.deepEqual(pull.log, ['close']);
});

test('an image that cannot be resolved is told to everybody who waits', async () => {
  const pull = startPull();
  const joins = [pull.join(), pull.join()];
  pull.resolve.calls[0]?.reject(notFound('no'));
  for (const join of joins) await assert.rejects(join, (error) => isEngineError(error, 'not-found'));
  assert.equal(pull.state(), '"failed"');
});

test('the last client that leaves cancels; one that comes meanwhile starts it over', async () => {
  const pull = startPull();
  const [one, two] = [new AbortController(), new AbortController()];
  const joins = [pull.join(one.signal), pull.join(two.signal)];
  one.abort();
  assert.deepEqual(pull.log, []);
  two.abort();
  assert.deepEqual(pull.log, ['cancel']);
  for (const join of joins) await assert.rejects(join, (error) => isEngineError(error, 'cancelled'));
  const again = pull.join();
  assert.equal(pull.resolve.calls.length, 1, 'the old effect has not ended');
  pull.resolve.calls[0]?.reject(cancelled('not wanted'));
  await turn();
  assert.equal(pull.resolve.calls.length, 2);
  pull.resolve.calls[1]?.resolve(located);
  const { interest } = await again;
  pull.actor.send({ type: 'pull.left', interest });
  assert.equal(pull.state(), '{"fetching":"cancelling"}');
  const once = pull.join();
  pull.fetch.calls[0]?.reject(cancelled('not wanted'));
  await turn();
  assert.equal(pull.state(), '{"resolving":"wanted"}');
  pull.resolve.calls[2]?.resolve(located);
  await once;
});

test('nobody left ends the pull; layers that were complete anyway are registered', async () => {
  const gone = startPull();
  const abort = new AbortController();
  const join = gone.join(abort.signal);
  abort.abort();
  await assert.rejects(join);
  gone.resolve.calls[0]?.reject(cancelled('not wanted'));
  await turn();
  assert.equal(gone.state(), '"failed"');

  const late = startPull();
  const joined = late.join();
  late.resolve.calls[0]?.resolve(located);
  late.actor.send({ type: 'pull.left', interest: (await joined).interest });
  late.fetch.calls[0]?.resolve();
  await turn();
  late.register.calls[0]?.resolve();
  await turn();
  assert.equal(late.state(), '"done"');
});

test('a failure after the first byte closes the board with it', async () => {
  const pull = startPull();
  const joined = pull.join();
  pull.resolve.calls[0]?.resolve(located);
  await joined;
  pull.fetch.calls[0]?.reject(internal('broken'));
  await turn();
  assert.deepEqual(pull.log, ['close broken']);
  await assert.rejects(pull.join(), (error) => isEngineError(error, 'unavailable'));
});

function startLayer() {
  const replies = new Replies();
  const transfer = gate<void>();
  const log: string[] = [];
  const machine = createLayerMachine(
    { transfer: () => transfer.run() },
    {
      cancel: () => void log.push('cancel'),
      retain: () => void log.push('retain'),
      release: () => void log.push('release'),
    },
    replies,
  );
  const input = { layer: { chainId: 'sha256:1' } } as unknown as LayerInput;
  const actor = createActor(machine, { input }).start();
  actor.subscribe({ error: () => undefined, complete: () => replies.actorEnded(actor) });
  const join = (signal?: AbortSignal) => replies.ask<LayerCommand>(actor, { type: 'layer.join' }, signal);
  return { join, transfer, log, state: () => JSON.stringify(actor.getSnapshot().value) };
}

test('everybody who waits for a layer gets a reference of his own', async () => {
  const layer = startLayer();
  const joins = [layer.join(), layer.join()];
  layer.transfer.calls[0]?.resolve();
  await Promise.all(joins);
  assert.deepEqual(layer.log, ['retain', 'retain', 'release']);
  assert.equal(layer.state(), '"done"');
});

test('a transfer that nobody wants is cancelled, and taken up again for whoever comes meanwhile', async () => {
  const layer = startLayer();
  const abort = new AbortController();
  const first = layer.join(abort.signal);
  abort.abort();
  await assert.rejects(first);
  const second = layer.join();
  layer.transfer.calls[0]?.reject(cancelled('not wanted'));
  await turn();
  assert.equal(layer.state(), '{"transferring":"wanted"}');
  layer.transfer.calls[1]?.reject(internal('broken'));
  await assert.rejects(second, { message: 'broken' });
  assert.deepEqual(layer.log, ['cancel']);
});
