/** A container actor for tests of the machine. Its effects do nothing, and lists keep all that it tells. */
import { createActor, type Actor } from 'xstate';
import type { EngineError } from '../../errors/engine-error.js';
import type { ContainerConfig, HostConfig } from '../../ports/container.js';
import type { Unasked } from '../kit/commands.js';
import { Replies } from '../kit/replies.js';
import type { ContainerInput } from './container.context.js';
import type { ContainerEffects, ContainerHooks } from './container.effects.types.js';
import { createContainerMachine } from './container.machine.js';
import type { ContainerCommand } from './container.messages.js';
import { NEVER, withState, type ContainerRecord } from './container.record.js';

export const record: ContainerRecord = {
  version: 1,
  id: 'ab'.repeat(32),
  name: '/web',
  created: '2026-01-01T00:00:00Z',
  path: 'true',
  args: [],
  image: 'sha256:00',
  topLayer: undefined,
  config: { Labels: {} } as unknown as ContainerConfig,
  hostConfig: { RestartPolicy: { Name: 'no', MaximumRetryCount: 0 }, AutoRemove: false } as HostConfig,
  networks: {},
  mounts: [],
  ports: [],
  state: { status: 'created', pid: 0, exitCode: 0, error: '', oomKilled: false, startedAt: NEVER, finishedAt: NEVER },
  restartCount: 0,
  manuallyStopped: false,
  logPath: '',
};

export const withHost = (host: Partial<HostConfig>): ContainerRecord => ({
  ...record,
  hostConfig: { ...record.hostConfig, ...host },
});
export const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/**
 * Begins a container actor whose effects succeed at once unless a test replaces them; nothing here pretends to be a
 * driver.
 */
export function harness(input: ContainerInput, overrides: Partial<ContainerEffects & ContainerHooks> = {}) {
  const replies = new Replies();
  const events: string[] = [];
  const views: (ContainerRecord | undefined)[] = [];
  const log: string[] = [];
  const effects: ContainerEffects = {
    create: async (r) => r,
    start: async (r) => (
      log.push('start'),
      withState(r, { status: 'running', pid: 7, startedAt: new Date().toISOString() })
    ),
    adopt: async ({ record: r }) => r,
    stop: () => {
      log.push('stop');
      actor.send({ type: 'task.exited', exit: { exitCode: 143, exitedAt: new Date() } });
      return new Promise(() => undefined);
    },
    pause: async () => undefined,
    unpause: async () => undefined,
    drain: async () => undefined,
    release: async ({ record: r }) => (log.push('release'), r),
    remove: async () => void log.push('remove'),
    rewire: async ({ record: r, change }) => (
      log.push('rewire'),
      { ...r, networks: { [change.network]: { request: {} } } }
    ),
    save: async () => undefined,
    ...overrides,
  };
  const hooks: ContainerHooks = {
    publish: (_id, view) => views.push(view),
    emit: (action) => events.push(action),
    kill: async () => undefined,
    exited: () => undefined,
    released: () => undefined,
    forget: () => undefined,
    saveLater: () => undefined,
    ...overrides,
  };
  const actor: Actor<ReturnType<typeof createContainerMachine>> = createActor(
    createContainerMachine(effects, hooks, replies),
    { input },
  );
  actor.subscribe({
    complete: () => replies.actorEnded(actor),
    error: (error) => replies.actorEnded(actor, error as EngineError),
  });
  actor.start();
  const ask = <T = unknown>(command: Unasked<ContainerCommand>, signal?: AbortSignal): Promise<T> =>
    replies.ask<ContainerCommand>(actor, command, signal) as Promise<T>;
  const exit = (exitCode: number): void =>
    actor.send({ type: 'task.exited', exit: { exitCode, exitedAt: new Date() } });
  const state = (): unknown => actor.getSnapshot().value;
  return { actor, ask, exit, events, views, log, state, replies, last: () => views.at(-1) };
}
