/** The supervisor driver against real containerd and runc. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { isEngineError } from '../../src/errors/engine-error.js';
import type { TaskEvent } from '../../src/ports/supervisor.js';
import { createStdio } from '../../src/supervisor/stdio/stdio.js';
import { ociProcess } from '../support/oci-bundle.js';
import { shimsOf } from '../support/shim-of.js';
import { exitOf, nextEvent, SupervisorHarness, untilText } from '../support/supervisor-harness.js';
import { waitFor } from '../support/wait.js';

const SIGKILL = 9;
const SIGTERM = 15;

const harness = new SupervisorHarness();
const supervisor = harness.supervisor();
const { tasks } = supervisor;

before(() => supervisor.start());
after(async () => {
  await harness.endAll(supervisor);
  await supervisor.stop();
  await harness.cleanUp();
});

test('the plugins of containerd that we leave are those that can be loaded', () => {
  assert.deepEqual(
    harness.log.filter((line) => line.includes('failed to load plugin')),
    [],
  );
});

test('a process that ends at once is reported with its exit code and its output to the last byte', async () => {
  const script = 'seq 1 100000; echo last >&2; exit 7';
  const begun = Date.now();
  const container = await harness.start(supervisor, { args: ['sh', '-c', script] });
  const { exitCode, exitedAt } = await container.finish();
  assert.equal(exitCode, 7);
  assert.ok(begun <= exitedAt.getTime() && exitedAt.getTime() <= Date.now(), exitedAt.toISOString());
  const expected = Array.from({ length: 100_000 }, (_, index) => `${index + 1}\n`).join('');
  assert.equal(container.stdout() === expected, true, 'stdout is complete');
  assert.equal(container.stderr(), 'last\n');
  assert.equal((await tasks.get(container.id))?.status, 'stopped');
  await harness.remove(supervisor, container);
  assert.equal(await tasks.get(container.id), undefined);
  await tasks.delete(container.id);
});

test("a missing command fails creation with the runtime's text and leaves nothing", async () => {
  const failure = harness.create(supervisor, { args: ['no-such-command'] });
  await assert.rejects(failure, (error) => {
    assert.ok(isEngineError(error, 'internal'));
    assert.match(error.message, /exec: "no-such-command": executable file not found in \$PATH$/);
    assert.equal(error.details.runtimeError, true);
    return true;
  });
  assert.deepEqual(await tasks.list(), []);
});

test('a container that was never started can be deleted, and its id used again', async () => {
  const container = await harness.create(supervisor, { args: ['true'] });
  assert.equal((await tasks.get(container.id))?.status, 'created');
  await tasks.delete(container.id);
  const spec = harness.spec(container.id, { args: ['true'] });
  const stdio = { stdin: '', stdout: '', stderr: '', terminal: false };
  const create = () => tasks.create({ id: container.id, spec, runtime: { type: 'io.containerd.runc.v2' }, stdio });
  await create();
  // The record of a task that an earlier life of the daemon left does not stand in the way, a running task does.
  await create();
  const exit = nextEvent(supervisor, (event) => event.type === 'exit' && event.id === container.id);
  await tasks.start(container.id);
  await exit;
  await harness.remove(supervisor, container);
});

test('signals end a process, and what is refused is told apart', async () => {
  const container = await harness.start(supervisor, { args: ['sleep', '1000'] });
  const { id } = container;
  await assert.rejects(tasks.delete(id), (error) => isEngineError(error, 'conflict'));
  const stdio = { stdin: '', stdout: '', stderr: '', terminal: false };
  const again = tasks.create({ id, spec: {}, runtime: { type: 'io.containerd.runc.v2' }, stdio });
  await assert.rejects(again, (error) => isEngineError(error, 'conflict'));
  assert.equal((await tasks.get(id))?.status, 'running');
  assert.deepEqual(await tasks.pids(id), [container.pid]);
  await tasks.kill(id, SIGKILL);
  assert.equal((await container.finish()).exitCode, 137);
  await assert.rejects(tasks.kill(id, SIGTERM), (error) => isEngineError(error, 'not-found'));
  await harness.remove(supervisor, container);
});

test('kill with all reaches every process of the container', async () => {
  const container = await harness.start(supervisor, { args: ['sh', '-c', 'sleep 1000 & sleep 1000 & echo up; wait'] });
  await untilText(container.stdout, container.io.stdout, 'up');
  assert.equal((await tasks.pids(container.id)).length, 3);
  await tasks.kill(container.id, SIGKILL, { all: true });
  assert.equal((await container.finish()).exitCode, 137);
  await harness.remove(supervisor, container);
});

test('a terminal has its size, can be resized, and carries all output on stdout', async () => {
  const script = 'stty size; read line; stty size; echo "got $line" >&2';
  const container = await harness.start(supervisor, { args: ['sh', '-c', script], stdin: true, terminal: true });
  assert.equal(container.io.stderr, undefined);
  await untilText(container.stdout, container.io.stdout, '24 80');
  await tasks.resize(container.id, { width: 132, height: 50 });
  const stdin = await container.io.openStdin();
  stdin?.write('hello\n');
  assert.equal((await container.finish()).exitCode, 0);
  assert.equal(container.stdout(), '24 80\r\nhello\r\n50 132\r\ngot hello\r\n');
  await harness.remove(supervisor, container);
});

test('closing stdin ends a reader after it has read everything', async () => {
  const container = await harness.create(supervisor, { args: ['cat'], stdin: true });
  const stdin = await container.io.openStdin();
  assert.ok(stdin);
  const text = 'line\n'.repeat(200_000);
  const closed = once(stdin, 'close');
  stdin.end(text);
  await tasks.start(container.id);
  await closed;
  await tasks.closeStdin(container.id);
  assert.equal((await container.finish()).exitCode, 0);
  assert.equal(container.stdout() === text, true, 'all of stdin came back');
  await harness.remove(supervisor, container);
});

test('exec runs further processes, with their own stdio and exits', async () => {
  const container = await harness.start(supervisor, { args: ['sleep', '1000'] });
  const { id } = container;
  const io = createStdio({
    dir: join(harness.dir, 'io', 'exec1'),
    stdin: true,
    stdout: true,
    stderr: false,
    terminal: false,
  });
  let output = '';
  io.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  assert.equal(io.stderr, undefined);
  const exit = nextEvent(supervisor, (event) => event.type === 'exit' && event.execId === 'exec1');
  const { pid } = await tasks.exec(id, 'exec1', {
    process: ociProcess(['sh', '-c', 'cat; echo dropped >&2; exit 3']),
    stdio: io.paths,
  });
  assert.ok(existsSync(`/proc/${pid}`));
  const stdin = await io.openStdin();
  assert.ok(stdin);
  stdin.end('through exec');
  await once(stdin, 'close');
  await tasks.closeStdin(id, 'exec1');
  const event = await exit;
  assert.equal(exitOf(event).exitCode, 3);
  assert.equal(event.id, id);
  await io.drained(5_000);
  assert.equal(output, 'through exec');
  await tasks.deleteExec(id, 'exec1');
  await tasks.deleteExec(id, 'exec1');
  await io.close();

  const none = { stdin: '', stdout: '', stderr: '', terminal: false };
  for (let time = 0; time < 2; time++) {
    // The second time under the same id: nothing is left of the first.
    await assert.rejects(
      tasks.exec(id, 'exec2', { process: ociProcess(['no-such-command']), stdio: none }),
      (error) => {
        return (
          isEngineError(error, 'internal') &&
          error.message.includes('exec: "no-such-command"') &&
          !error.message.endsWith(': unknown')
        );
      },
    );
  }
  await tasks.kill(id, SIGKILL);
  await container.finish();
  await harness.remove(supervisor, container);
});

test('an exit that was told to nobody is known when its shim answers again', async (t) => {
  const external = harness.supervisor({ address: harness.socket });
  t.after(() => external.stop());
  const container = await harness.start(supervisor, { args: ['sh', '-c', 'exit 7'] });
  const other = await harness.start(supervisor, { args: ['sleep', '1000'] });
  await container.exit;
  const shims = [...new Set([container, other].flatMap(({ id }) => shimsOf(harness.dir, id).map(({ pid }) => pid)))];
  assert.equal(shims.length, 2);
  for (const pid of shims) process.kill(pid, 'SIGSTOP');
  const told: TaskEvent[] = [];
  external.tasks.onEvent((event) => told.push(event));
  try {
    await external.start();
    const states = (await external.tasks.list(() => true)).map(({ status }) => status);
    assert.deepEqual([states, told], [['unknown', 'unknown'], []]);
  } finally {
    for (const pid of shims) process.kill(pid, 'SIGCONT');
  }
  await waitFor('both answers', () => told.length >= 2);
  const answers = new Map(told.map((event) => [event.id, event.type === 'exit' ? event.exit.exitCode : event.type]));
  assert.deepEqual([answers.get(container.id), answers.get(other.id), told.length], [7, 'resumed', 2]);
  const exit = nextEvent(external, ({ type, id }) => type === 'exit' && id === other.id);
  await external.tasks.kill(other.id, SIGKILL);
  assert.equal(exitOf(await exit).exitCode, 137);
  for (const one of [container, other]) await harness.remove(supervisor, one);
});

test('pause stops a container and is told in events', async () => {
  const container = await harness.start(supervisor, { args: ['sleep', '1000'] });
  const { id } = container;
  const seen: string[] = [];
  const unsubscribe = tasks.onEvent((event) => seen.push(event.type));
  await tasks.pause(id);
  assert.equal((await tasks.get(id))?.status, 'paused');
  const none = { stdin: '', stdout: '', stderr: '', terminal: false };
  await assert.rejects(tasks.exec(id, 'paused', { process: ociProcess(['true']), stdio: none }), (error) =>
    isEngineError(error),
  );
  await tasks.resume(id);
  await tasks.kill(id, SIGKILL);
  await container.finish();
  unsubscribe();
  assert.deepEqual(seen, ['paused', 'resumed', 'exit']);
  await harness.remove(supervisor, container);
});

test('limits are updated and statistics decoded', async () => {
  const container = await harness.start(supervisor, { args: ['sleep', '1000'], memoryBytes: 64 << 20 });
  await tasks.update(container.id, { memory: { limit: 96 << 20 } });
  const metrics = JSON.stringify(await tasks.metrics(container.id), (_, value: unknown) =>
    typeof value === 'bigint' ? Number(value) : value,
  );
  assert.match(metrics, /"\$typeName":"io\.containerd\.cgroups\.v[12]\.Metrics"/);
  assert.match(metrics, new RegExp(`"(?:limit|usageLimit)":${96 << 20}\\b`));
  // More than one while the runtime's threads have not become the command yet.
  assert.match(metrics, /"pids":\{[^}]*"current":[1-9]/);
  await tasks.kill(container.id, SIGKILL);
  await container.finish();
  await harness.remove(supervisor, container);
  await assert.rejects(tasks.metrics(container.id), (error) => isEngineError(error, 'not-found'));
});

test('a container that exceeds its memory is reported before its exit', async () => {
  const events: TaskEvent[] = [];
  const unsubscribe = tasks.onEvent((event) => events.push(event));
  const container = await harness.start(supervisor, { args: ['sh', '-c', 'tail /dev/zero'], memoryBytes: 16 << 20 });
  assert.equal((await container.finish()).exitCode, 137);
  unsubscribe();
  await harness.remove(supervisor, container);
  // The kernel tells it once more where the shell, too, asks for memory before `tail` is gone.
  assert.match(events.map(({ type }) => type).join(' '), /^(?:oom )+exit$/);
});

test('many containers at once', async () => {
  const containers = await Promise.all(
    Array.from({ length: 8 }, (_, index) =>
      harness.start(supervisor, { args: ['sh', '-c', `echo ${index}; exit ${index}`] }),
    ),
  );
  const codes = await Promise.all(containers.map(async (container) => (await container.finish()).exitCode));
  assert.deepEqual(codes, [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(
    containers.map(({ stdout }) => stdout().trim()),
    ['0', '1', '2', '3', '4', '5', '6', '7'],
  );
  await Promise.all(containers.map((container) => harness.remove(supervisor, container)));
});

test('the supervisor tells its version and runs the configured plugins only', async () => {
  assert.match((await tasks.version()).version, /^v?\d+\./);
  const config = readFileSync(join(harness.dir, 'exec/supervisor/supervisor.toml'), 'utf8');
  assert.match(config, /"io\.containerd\.grpc\.v1\.cri"/);
  assert.ok(harness.log.some((line) => line.startsWith('info containerd successfully booted')));
});

test('containerd has understood that its collector of garbage looks once a second', () => {
  const socket = join(harness.dir, 'exec/supervisor/supervisor.sock');
  const args = ['--address', socket, 'plugins', 'ls', '--detailed', 'id==scheduler'];
  assert.match(execFileSync('ctr', args, { encoding: 'utf8' }), /^ *PauseThreshold +0$/m);
});

test('a refused creation leaves the FIFOs to be removed by their owner', async () => {
  const dir = join(harness.dir, 'io', 'refused');
  const io = createStdio({ dir, stdin: true, stdout: true, stderr: true, terminal: false });
  const stdio = io.paths;
  await assert.rejects(
    supervisor.tasks.create({ id: 'not an id', spec: {}, runtime: { type: 'io.containerd.runc.v2' }, stdio }),
    (error) => isEngineError(error, 'invalid'),
  );
  await assert.rejects(
    supervisor.tasks.create({ id: harness.newId(), spec: {}, runtime: { type: 'io.containerd.none.v9' }, stdio }),
    (error) => isEngineError(error),
  );
  await io.close();
  assert.equal(existsSync(dir), false);
  assert.deepEqual(await supervisor.tasks.list(), []);
});
