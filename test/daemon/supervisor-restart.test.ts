/** Deaths of containerd and of the daemon while containers run. */
import assert from 'node:assert/strict';
import { execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError } from '../../src/errors/engine-error.js';
import type { SupervisorProcess, TaskEvent } from '../../src/ports/supervisor.js';
import { taskDir } from '../../src/supervisor/containerd-config.js';
import { HeardExits } from '../../src/supervisor/exits/heard-exits.js';
import { ShimWitness } from '../../src/supervisor/shims/shim-witness.js';
import { reopenStdio } from '../../src/supervisor/stdio/stdio.js';
import { ociProcess } from '../support/oci-bundle.js';
import { waitFor } from '../support/wait.js';
import { exitOf, nextEvent, nextState, SupervisorHarness, untilText } from '../support/supervisor-harness.js';

const SIGKILL = 9;
const SIGTERM = 15;
/** This is longer than a start waits for a process that shows no sign of life. */
const SLOW_START_SECONDS = 10;
const NO_STDIO = { stdin: '', stdout: '', stderr: '', terminal: false };

/** Runs the body with a started supervisor, and leaves nothing behind whatever happens in it. */
async function withSupervisor(
  body: (supervisor: SupervisorProcess, harness: SupervisorHarness) => Promise<void>,
  options: { runtimeKilled?: boolean } = {},
): Promise<void> {
  const harness = new SupervisorHarness();
  const supervisor = harness.supervisor();
  try {
    await supervisor.start();
    await body(supervisor, harness);
  } finally {
    await harness.endAll(supervisor);
    await supervisor.stop();
    await harness.cleanUp(options);
  }
}

test('containerd killed: containers go on, exits during its absence are reported once, later ones too', async () => {
  await withSupervisor(async (supervisor, harness) => {
    const { tasks } = supervisor;
    const pid = supervisor.pid ?? assert.fail('no child');
    const loop = 'trap "exit 5" TERM; i=0; while true; do i=$((i+1)); echo "line $i"; sleep 0.02; done';
    const [staying, leaving] = await Promise.all([
      harness.start(supervisor, { args: ['sh', '-c', loop] }),
      harness.start(supervisor, { args: ['sh', '-c', 'read line; exit 4'], stdin: true }),
    ]);
    await tasks.exec(staying.id, 'exec1', { process: ociProcess(['sh', '-c', 'sleep 0.4; exit 6']), stdio: NO_STDIO });
    const events: TaskEvent[] = [];
    tasks.onEvent((event) => events.push(event));
    const execExit = nextEvent(supervisor, (event) => event.type === 'exit' && event.execId === 'exec1');
    const stdin = await leaving.io.openStdin();

    // Stopped first, so that what ends now ends unseen.
    const degraded = nextState(supervisor, 'degraded');
    const ready = degraded.then(() => nextState(supervisor, 'ready'));
    process.kill(pid, 'SIGSTOP');
    stdin?.write('go\n');
    await delay(500);
    process.kill(pid, 'SIGKILL');
    await degraded;
    const seen = staying.stdout().length;
    const listing = tasks.list();
    await ready;
    assert.notEqual(supervisor.pid, pid);
    assert.equal((await listing).length, 2, 'a call made during the absence waits for the new process');
    assert.equal((await leaving.finish()).exitCode, 4);
    assert.equal(exitOf(await execExit).exitCode, 6);
    assert.equal((await tasks.get(staying.id))?.status, 'running');
    assert.ok(staying.stdout().length > seen);

    await tasks.kill(staying.id, SIGTERM);
    assert.equal((await staying.finish()).exitCode, 5);
    const numbers = staying
      .stdout()
      .trim()
      .split('\n')
      .map((line) => Number(line.slice('line '.length)));
    assert.deepEqual(
      numbers,
      numbers.map((_, index) => index + 1),
      'no line is missing',
    );
    assert.deepEqual(
      events
        .filter(({ type }) => type === 'exit')
        .map((event) => (event.type === 'exit' && event.execId) || event.id)
        .sort(),
      ['exec1', leaving.id, staying.id].sort(),
    );
    await tasks.deleteExec(staying.id, 'exec1');
    await Promise.all([staying, leaving].map((container) => harness.remove(supervisor, container)));
  });
});

test('what ends in the absence of containerd is heard from the shims, without it', async () => {
  await withSupervisor(async (supervisor, harness) => {
    const pid = supervisor.pid ?? assert.fail('no child');
    const [before, after] = await Promise.all(
      [4, 5].map((code) => harness.start(supervisor, { args: ['sh', '-c', `read line; exit ${code}`], stdin: true })),
    );
    assert.ok(before && after);
    const staying = await harness.start(supervisor, { args: ['sh', '-c', 'while :; do sleep 0.1; done'] });
    const exec = { id: staying.id, execId: 'exec1' };
    await supervisor.tasks.exec(exec.id, exec.execId, {
      process: ociProcess(['sh', '-c', 'sleep 0.4; exit 6']),
      stdio: NO_STDIO,
    });
    const inputs = await Promise.all([before, after].map(({ io }) => io.openStdin()));
    process.kill(pid, 'SIGSTOP');
    inputs[0]?.write('go\n');
    await waitFor('the first to end', () => !existsSync(`/proc/${before.pid}/cwd`), 60_000);
    const state = join(harness.dir, 'exec/supervisor/state');
    const directory = join(harness.dir, 'heard');
    const heard = new HeardExits(directory);
    const witness = await ShimWitness.listen(taskDir(state, 'engine'), heard, [exec]);
    try {
      const codeOf = (id: string, execId = ''): number | undefined => heard.get({ id, execId })?.exitStatus;
      await waitFor('the exit that was before', () => codeOf(before.id) === 4, 60_000);
      inputs[1]?.write('go\n');
      await waitFor('the exit that came after', () => codeOf(after.id) === 5, 60_000);
      await waitFor('the exit of a process within', () => codeOf(exec.id, exec.execId) === 6, 60_000);
      assert.equal(codeOf(staying.id), undefined);
      assert.deepEqual(
        heard
          .tasks()
          .map(({ id }) => id)
          .sort(),
        [before.id, after.id].sort(),
      );
      heard.forget(before.id);
      assert.equal(codeOf(before.id), undefined);
      writeFileSync(join(directory, 'damaged,'), 'no message');
      writeFileSync(join(directory, 'empty,'), '');
      const next = new HeardExits(directory);
      assert.deepEqual((await next.load()).sort(), ['damaged,', 'empty,']);
      assert.deepEqual(
        [before.id, after.id, staying.id].map((id) => next.get({ id, execId: '' })?.exitStatus),
        [undefined, 5, undefined],
        'a later daemon knows what was heard',
      );
      assert.equal(next.get(exec)?.exitStatus, 6);
      for (const id of [after.id, staying.id]) next.forget(id);
      assert.deepEqual(readdirSync(directory), []);
    } finally {
      witness.close();
      process.kill(pid, 'SIGCONT');
    }
    await Promise.all([before.finish(), after.finish()]);
    await supervisor.tasks.kill(staying.id, SIGKILL);
    await staying.finish();
    await Promise.all([before, after, staying].map((container) => harness.remove(supervisor, container)));
  });
});

test('containerd killed again and again is started again', async () => {
  await withSupervisor(async (supervisor, harness) => {
    for (let round = 0; round < 3; round++) {
      const ready = nextState(supervisor, 'ready');
      process.kill(supervisor.pid ?? assert.fail('no child'), 'SIGKILL');
      await ready;
    }
    const container = await harness.start(supervisor, { args: ['true'] });
    assert.equal((await container.finish()).exitCode, 0);
    await harness.remove(supervisor, container);
  });
});

test('a task that is being created while containerd dies fails, and nothing is left of it', async () => {
  await withSupervisor(
    async (supervisor, harness) => {
      let failures = 0;
      // The shim is being started, it is up, the runtime makes the container: on some machine each of them is hit.
      for (const ms of [5, 10, 15, 20, 30, 50]) {
        const creating = harness.create(supervisor, { args: ['true'] });
        const ready = nextState(supervisor, 'ready');
        await delay(ms);
        process.kill(supervisor.pid ?? assert.fail('no child'), 'SIGKILL');
        try {
          await harness.remove(supervisor, await creating);
        } catch (error) {
          assert.ok(isEngineError(error, 'unavailable'), String(error));
          failures += 1;
        }
        await ready;
        assert.deepEqual(await supervisor.tasks.list(), []);
      }
      assert.ok(failures > 0, 'containerd died in time');
    },
    { runtimeKilled: true },
  );
});

test('the daemon killed: its successor takes over containerd, the container and its output', async () => {
  const harness = new SupervisorHarness();
  const life = fork(join(import.meta.dirname, '../support/supervisor-life.js'), [harness.dir]);
  const [first] = (await once(life, 'message')) as [{ containerd: number; id: string; output: string }];
  life.kill('SIGKILL');
  await once(life, 'exit');

  const supervisor = harness.supervisor();
  const { tasks } = supervisor;
  try {
    await supervisor.start();
    assert.equal(supervisor.pid, first.containerd);
    const [task] = await tasks.list();
    assert.equal(task?.id, first.id);
    assert.equal(task.status, 'running');
    const io = reopenStdio(task.stdio);
    let output = '';
    io.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await untilText(() => output, io.stdout, '\nline ');
    assert.ok(await io.openStdin());
    // The taken-over process is no child of ours; its end is noticed all the same.
    const ready = nextState(supervisor, 'ready');
    process.kill(first.containerd, 'SIGKILL');
    await ready;
    assert.notEqual(supervisor.pid, first.containerd);
    const exit = nextEvent(supervisor, (event) => event.type === 'exit' && event.id === first.id);
    await tasks.kill(first.id, SIGKILL);
    assert.equal(exitOf(await exit).exitCode, 137);
    await io.drained(5_000);
    await harness.remove(supervisor, { id: first.id, io });
  } finally {
    await harness.endAll(supervisor);
    await supervisor.stop();
    await harness.cleanUp();
  }
});

test('the daemon killed while containerd boots: it ends, too, as it would forget who ends meanwhile', async () => {
  const harness = new SupervisorHarness();
  const bin = join(harness.dir, 'bin');
  mkdirSync(bin);
  writeFileSync(join(bin, 'containerd'), '#!/bin/sh\nexec sleep 1000\n', { mode: 0o755 });
  const life = fork(join(import.meta.dirname, '../support/supervisor-life.js'), [harness.dir], {
    env: { ...process.env, PATH: `${bin}:${process.env.PATH}` },
  });
  const pidFile = join(harness.dir, 'exec/supervisor/supervisor.pid');
  await waitFor('containerd to be started', () => existsSync(pidFile), 60_000);
  const pid = readFileSync(pidFile, 'utf8').trim();
  assert.ok(existsSync(`/proc/${pid}/exe`));
  life.kill('SIGKILL');
  await waitFor('containerd to be killed', () => !existsSync(`/proc/${pid}/exe`), 60_000);
  await harness.cleanUp();
});

test('the daemon and containerd killed while a task is created: the next start leaves nothing of it', async () => {
  for (const ms of [10, 20, 40]) {
    const harness = new SupervisorHarness();
    const life = fork(join(import.meta.dirname, '../support/supervisor-life.js'), [harness.dir, 'creating']);
    const [first] = (await once(life, 'message')) as [{ containerd: number; id: string }];
    harness.ids.push(first.id);
    await delay(ms);
    process.kill(first.containerd, 'SIGKILL');
    life.kill('SIGKILL');
    await once(life, 'exit');
    harness.leaveUnborn();
    const supervisor = harness.supervisor();
    try {
      await supervisor.start();
      // The record on disk says that the container is starting.
      await supervisor.tasks.delete(first.id);
      assert.deepEqual(await supervisor.tasks.list(), []);
    } finally {
      rmSync(join(harness.dir, 'io'), { recursive: true, force: true });
      await supervisor.stop();
      await harness.cleanUp();
    }
  }
});

for (const [reason, options, harm] of [
  ['is configured otherwise', { debug: true }, 'SIGCONT'],
  ['does not answer', {}, 'SIGSTOP'],
] as const) {
  test(`a containerd that is left over and ${reason} is replaced, its containers stay`, async () => {
    const harness = new SupervisorHarness();
    const life = fork(join(import.meta.dirname, '../support/supervisor-life.js'), [harness.dir]);
    const [first] = (await once(life, 'message')) as [{ containerd: number; id: string }];
    life.kill('SIGKILL');
    await once(life, 'exit');
    process.kill(first.containerd, harm);
    // A signal does not stop all threads at once.
    await delay(100);

    const supervisor = harness.supervisor(options);
    try {
      await supervisor.start();
      assert.notEqual(supervisor.pid, first.containerd);
      const [task] = await supervisor.tasks.list();
      assert.equal(task?.status, 'running');
      const io = reopenStdio(task.stdio);
      io.stdout?.resume();
      const exit = nextEvent(supervisor, (event) => event.type === 'exit');
      await supervisor.tasks.kill(task.id, SIGKILL);
      await exit;
      await harness.remove(supervisor, { id: task.id, io });
    } finally {
      await harness.endAll(supervisor);
      await supervisor.stop();
      await harness.cleanUp();
    }
  });
}

test('stopping ends containerd and leaves running containers to the next start', async () => {
  const harness = new SupervisorHarness();
  const first = harness.supervisor();
  await first.start();
  const container = await harness.start(first, { args: ['sleep', '1000'] });
  const pid = first.pid ?? assert.fail('no child');
  await first.stop();
  assert.equal(existsSync(`/proc/${pid}`), false);
  assert.equal(existsSync(harness.socket), false);
  await assert.rejects(first.tasks.list(), (error) => isEngineError(error, 'unavailable'));

  const second = harness.supervisor();
  await second.start();
  const exit = nextEvent(second, (event) => event.type === 'exit');
  await second.tasks.kill(container.id, SIGKILL);
  assert.equal(exitOf(await exit).exitCode, 137);
  await harness.remove(second, container);
  await second.stop();
  await harness.cleanUp();
});

test('an external containerd is used and not stopped', async () => {
  await withSupervisor(async (own, harness) => {
    const supervisor = harness.supervisor({ address: harness.socket });
    await supervisor.start();
    assert.equal(supervisor.pid, undefined);
    const container = await harness.start(supervisor, { args: ['true'] });
    assert.equal((await container.finish()).exitCode, 0);
    await harness.remove(supervisor, container);
    await supervisor.stop();
    assert.deepEqual(await own.tasks.list(), []);
  });
});

test('what keeps containerd from starting is said', async () => {
  const harness = new SupervisorHarness();
  const path = process.env.PATH;
  process.env.PATH = '/nonexistent';
  await assert.rejects(
    harness.supervisor().start(),
    (error) => isEngineError(error, 'unavailable') && /apt package containerd/.test(error.message),
  );
  process.env.PATH = path;
  assert.throws(
    () => harness.supervisor({ execRoot: `/tmp/${'x'.repeat(100)}` }),
    (error) => isEngineError(error, 'invalid') && error.message.startsWith('exec-root '),
  );
  // Its database is a directory here.
  mkdirSync(join(harness.dir, 'data/supervisor/io.containerd.metadata.v1.bolt/meta.db'), { recursive: true });
  await assert.rejects(
    harness.supervisor().start(),
    (error) => isEngineError(error, 'unavailable') && /meta\.db/.test(error.message),
  );
  await assert.rejects(harness.supervisor({ address: join(harness.dir, 'none.sock') }).start(), (error) =>
    isEngineError(error, 'unavailable'),
  );
  await harness.cleanUp();
});

test('a containerd that takes long to start is waited for, as long as it does something', async () => {
  const harness = new SupervisorHarness();
  const bin = join(harness.dir, 'bin');
  mkdirSync(bin);
  const found = execFileSync('sh', ['-c', 'command -v containerd'], { encoding: 'utf8' }).trim();
  // A process that begins others is seen to do something: pages are copied.
  const busy = `end=$(($(date +%s) + ${SLOW_START_SECONDS})); while [ $(date +%s) -lt $end ]; do sleep 0.2; done`;
  writeFileSync(join(bin, 'containerd'), `#!/bin/sh\n${busy}\nexec ${found} "$@"\n`, { mode: 0o755 });
  const path = process.env.PATH;
  process.env.PATH = `${bin}:${path}`;
  const supervisor = harness.supervisor();
  try {
    await supervisor.start();
    assert.deepEqual(await supervisor.tasks.list(), []);
  } finally {
    process.env.PATH = path;
    await supervisor.stop();
    await harness.cleanUp();
  }
});
