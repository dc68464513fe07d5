import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { status } from '@grpc/grpc-js';
import { EngineError, notFound } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { CreateTask } from '../ports/supervisor.js';
import type { GrpcConnection } from './grpc-connection.js';
import { TaskContainers } from './task-containers.js';

/** A containerd that answers when it is told to. */
function heldCalls() {
  const calls: string[] = [];
  const answers: { done: () => void; fail: (error: Error) => void }[] = [];
  const call = (name: string): Promise<unknown> => {
    calls.push(name);
    return new Promise((done, fail) => answers.push({ done: () => done({}), fail }));
  };
  const warned: unknown[] = [];
  const connection = { unary: () => ({ create: () => call('create'), delete: () => call('delete') }) };
  const logger = { warn: ({ err }: { err: unknown }) => warned.push(err) };
  const containers = new TaskContainers(connection as unknown as GrpcConnection, logger as unknown as Logger, '/runc');
  return { containers, calls, warned, next: () => answers.shift() };
}

const task = { id: 'one', spec: {}, runtime: { type: 'io.containerd.runc.v2' }, labels: {} } as unknown as CreateTask;

test('a container is made when the one of its ID before is removed, and another at once', async () => {
  const { containers, calls, next } = heldCalls();
  containers.remove('one');
  containers.remove('one');
  const same = containers.create(task);
  const other = containers.create({ ...task, id: 'two' });
  await turn();
  assert.deepEqual(calls, ['delete', 'create']);
  next()?.done();
  await turn();
  assert.deepEqual(calls, ['delete', 'create', 'create']);
  next()?.done();
  next()?.done();
  await Promise.all([same, other, containers.settled()]);
});

test('a removal is made again when its connection broke off, and what fails is told', async () => {
  const { containers, calls, warned, next } = heldCalls();
  containers.remove('one');
  let isSettled = false;
  const settled = containers.settled().then(() => (isSettled = true));
  const broken = new EngineError('unavailable', 'the connection was dropped', {
    details: { grpcCode: status.UNAVAILABLE },
  });
  next()?.fail(broken);
  await turn();
  assert.deepEqual([calls, isSettled], [['delete', 'delete'], false]);
  next()?.fail(notFound('no such container'));
  await settled;
  assert.deepEqual(warned, []);
  containers.remove('one');
  for (let attempt = 0; attempt < 2; attempt++) {
    next()?.fail(broken);
    await turn();
  }
  await containers.settled();
  assert.deepEqual(warned, [broken]);
});
