import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { create, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { KERNEL_TELLS_EXITS } from '../../../test/support/kernel-tells-exits.js';
import { silentLog } from '../../../test/support/silent-log.js';
import { deferred } from '../deferred.js';
import { KeptInits } from './kept-inits.js';
import { RpcResponseSchema, WaitResponseSchema } from '../proto/gen/shim_pb.js';
import { Status } from '../proto/gen/task_types_pb.js';

const skip = KERNEL_TELLS_EXITS ? false : 'the kernel does not tell exit codes';
const dir = mkdtempSync(join(tmpdir(), 'inits-'));
const children: ChildProcess[] = [];
const shims: Server[] = [];
after(() => {
  for (const shim of shims) shim.close();
  for (const child of children) child.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true });
});

function begin(end: string): ChildProcess & { pid: number } {
  const child = spawn('sh', ['-c', `read line; ${end}`], { stdio: ['pipe', 'ignore', 'inherit'] });
  children.push(child);
  assert.ok(child.pid);
  return child as ChildProcess & { pid: number };
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.stdin?.end('\n');
  await ended;
}

const pidfds = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).includes('pidfd');
    } catch {
      return false; // The directory's own descriptor.
    }
  }).length;

test('the next daemon knows how a process ended that nobody else remembers', { skip }, async () => {
  const options = { dir: join(dir, 'kernel'), bundles: dir, logger: silentLog };
  const first = new KeptInits(options);
  await first.load();
  const begun = ['exit 7', 'kill -TERM $$', 'exit 0', 'exit 9', 'exit 3'].map(begin);
  const [seven, killed, zero, deleted, living] = begun;
  assert.ok(seven && killed && zero && deleted && living);
  begun.forEach(({ pid }, i) => first.add(`task${i}`, pid));
  await Promise.all(begun.map((_, i) => first.hold(`task${i}`)));
  const open = pidfds();
  assert.equal(first.exitCode('task0'), undefined, 'it lives');
  await end(seven);
  await end(deleted);
  assert.equal(first.exitCode('task0'), 7);
  first.remove('task3');
  assert.equal(first.exitCode('task3'), undefined);
  first.close();
  assert.equal(pidfds(), open - begun.length);

  await Promise.all([end(killed), end(zero)]);
  // Twice, since the one that reads it may be killed as well.
  await new KeptInits(options).load();
  const next = new KeptInits(options);
  await next.load();
  const ended = next.ended().map(({ id, status, exitStatus }) => `${id} ${status} ${exitStatus}`);
  const { STOPPED } = Status;
  assert.deepEqual(ended.sort(), [`task0 ${STOPPED} 7`, `task1 ${STOPPED} ${128 + 15}`, `task2 ${STOPPED} 0`]);
  assert.equal(next.get('task4'), undefined, 'it lives');
  await end(living);
  assert.equal(next.get('task4')?.exitStatus, 3);
  for (let i = 0; i < begun.length; i++) next.remove(`task${i}`);
  next.close();
  const last = new KeptInits(options);
  await last.load();
  assert.deepEqual(last.ended(), []);
  assert.deepEqual(readdirSync(options.dir), [], 'their keepers have ended');
});

/** Lets no program be found, so that no keeper can be started. */
async function withoutPrograms(run: () => Promise<void>): Promise<void> {
  const { PATH } = process.env;
  process.env['PATH'] = '';
  try {
    await run();
  } finally {
    process.env['PATH'] = PATH;
  }
}

test('what could not be held stays with the earlier keeper, until it can be or is not needed', { skip }, async () => {
  const options = { dir: join(dir, 'unheld'), bundles: dir, logger: silentLog };
  const first = new KeptInits(options);
  await first.load();
  const begun = ['exit 7', 'exit 8', 'exit 9'].map(begin);
  begun.forEach(({ pid }, i) => first.add(`task${i}`, pid));
  await Promise.all(begun.map((_, i) => first.hold(`task${i}`)));
  first.close();
  await Promise.all(begun.map(end));

  const codes = (kept: KeptInits): (number | undefined)[] => begun.map((_, i) => kept.exitCode(`task${i}`));
  const second = new KeptInits(options);
  await withoutPrograms(() => second.load());
  assert.deepEqual(codes(second), [7, 8, 9]);
  second.close();

  const third = new KeptInits(options);
  await withoutPrograms(() => third.load());
  assert.deepEqual(codes(third), [7, 8, 9], 'the second one has left them');
  third.remove('task0');
  const later = begin('exit 1');
  third.add('later', later.pid);
  await third.hold('later');
  await end(later);
  assert.equal(readdirSync(options.dir).length, 2, 'one keeper and its note');
  third.close();

  const fourth = new KeptInits(options);
  await withoutPrograms(() => fourth.load());
  assert.deepEqual(codes(fourth), [undefined, 8, 9]);
  assert.equal(fourth.exitCode('later'), 1);
  for (const id of ['task1', 'task2', 'later']) fourth.remove(id);
  assert.deepEqual(readdirSync(options.dir), [], 'nothing of it is needed');
  fourth.close();
});

/** A shim that answers when the test says so. */
async function makeShim(bundles: string, id: string) {
  const path = join(bundles, `${id}.sock`);
  const asked = deferred<Socket>();
  // Answers that nobody has taken reset the connection at its end.
  const shim = createServer((socket) => socket.on('error', () => {}).once('data', () => asked.resolve(socket)));
  shims.push(shim);
  shim.listen(path);
  await once(shim, 'listening');
  mkdirSync(join(bundles, id));
  writeFileSync(join(bundles, id, 'address'), `unix://${path}`);
  const answer = async (response: MessageInitShape<typeof RpcResponseSchema>): Promise<void> => {
    const socket = await asked.promise;
    const message = toBinary(RpcResponseSchema, create(RpcResponseSchema, response));
    const head = Buffer.alloc(10);
    head.writeUInt32BE(message.length, 0);
    head.writeUInt32BE(1, 4);
    head.writeUInt8(2, 8);
    await new Promise<unknown>((resolve) => void socket.write(Buffer.concat([head, message]), resolve));
  };
  return { answer };
}

test('before that, the answer of the shim waits for the next daemon, and its socket goes with the task', async () => {
  const bundles = join(dir, 'bundles');
  mkdirSync(bundles);
  const options = { dir: join(dir, 'shims'), bundles, logger: silentLog, asksKernel: false };
  const first = new KeptInits(options);
  const names = ['told', 'refused', 'living', 'deleted', 'not-started'];
  const [told, refused, , deleted] = await Promise.all(names.map((id) => makeShim(bundles, id)));
  const started = [...names.slice(0, -1), 'without-shim'];
  for (const id of started) first.add(id, 1);
  await Promise.all(started.map((id) => first.hold(id)));
  first.remove('deleted');
  first.add('not-started', 1);
  first.close();
  const exitedAt = { seconds: 1_700_000_000n, nanos: 0 };
  const payload = toBinary(WaitResponseSchema, create(WaitResponseSchema, { exitStatus: 42, exitedAt }));
  await Promise.all([told?.answer({ payload }), deleted?.answer({ payload })]);
  await refused?.answer({ status: { code: 5, message: 'no such process' } });
  for (const attempt of ['first', 'second']) {
    const next = new KeptInits(options);
    await next.load();
    const ended = next.ended().map(({ id, status, exitStatus }) => `${id} ${status} ${exitStatus}`);
    assert.deepEqual(ended, [`told ${Status.STOPPED} 42`], attempt);
    assert.equal(next.get('told')?.exitedAt?.seconds, exitedAt.seconds);
    next.close();
  }
  const last = new KeptInits(options);
  await last.load();
  for (const id of names) last.remove(id);
  assert.equal(last.get('told'), undefined);
  last.close();
  assert.deepEqual(readdirSync(options.dir), []);
});
