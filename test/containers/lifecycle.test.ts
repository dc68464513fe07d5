/**
 * Starting, stopping, freezing and renaming a container: the changes, the refusals and the events that tell of them.
 * Passes against dockerd, too.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { attempt } from '../support/engine-commands.js';
import { call, callJson, open } from '../support/http.js';
import { buildImage, buildLayer, busyboxEntries, pushImage } from '../support/image-builder.js';
import { Lives, TRAP, now, refused } from '../support/lives.js';
import { startRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';

const lives = new Lives();

describe('stop', () => {
  test('the signal comes from the request, the container or the image, else it is TERM', async () => {
    const stopping = buildImage({ layers: [buildLayer(busyboxEntries())], config: { StopSignal: 'SIGUSR1' } });
    const registry = await startRegistry();
    const reference = `${registry.host}/test/stopping:1`;
    await pushImage(registry.url, 'test/stopping', '1', stopping);
    await lives.ok('pull', '-q', reference);
    const foreign = buildImage({ layers: [buildLayer(busyboxEntries())], config: { StopSignal: '99' } });
    const other = `${registry.host}/test/foreign:1`;
    await pushImage(registry.url, 'test/foreign', '1', foreign);
    await lives.ok('pull', '-q', other);
    await registry.stop();
    await lives.runTrapping('plain');
    await lives.runTrapping('own', '--stop-signal', 'USR1');
    await lives.ok('run', '-d', '--name', 'image', reference, 'sh', '-c', TRAP);
    await lives.ready('image');
    await lives.ok('stop', 'plain', 'own', 'image');
    assert.deepEqual(
      await Promise.all(['plain', 'own', 'image'].map(async (name) => (await lives.inspect(name)).State.ExitCode)),
      [7, 8, 8],
    );
    // This kernel does not know the signal of the image, and dockerd ends such a container at once.
    await lives.ok('run', '-d', '--name', 'foreign', other, 'sh', '-c', TRAP);
    await lives.ready('foreign');
    await lives.ok('stop', 'foreign');
    if (lives.engine.name === 'dockerd') return;
    assert.equal((await lives.inspect('foreign')).State.ExitCode, 7);
    await lives.ok('start', 'plain');
    await lives.ready('plain', 2);
    assert.equal((await lives.post('/v1.42/containers/plain/stop?signal=SIGUSR1')).status, 204);
    assert.equal((await lives.inspect('plain')).State.ExitCode, 8);
    await refused(lives.post('/containers/plain/stop?signal=NOPE'), 400, /invalid signal: NOPE/i);
  });

  test('after the grace it is KILL; the events say so', async () => {
    const since = now();
    const id = await lives.runDetached('deaf', 'trap "" TERM; exec sleep 1000', '--stop-timeout', '1');
    await sleep(300);
    const begun = Date.now();
    assert.equal((await lives.post('/containers/deaf/stop')).status, 204);
    assert.ok(Date.now() - begun >= 900, 'it has its second');
    assert.equal((await lives.inspect('deaf')).State.ExitCode, 137);
    assert.equal((await lives.post('/containers/deaf/stop')).status, 304);
    const told = await lives.events(since, id, 'signal', 'exitCode');
    assert.deepEqual(told.slice(-4), ['kill signal=15', 'kill signal=9', 'stop', 'die exitCode=137']);
  });

  test('a negative timeout waits for ever, and another stop brings it forward', async () => {
    await lives.runDetached('deaf', 'trap "" TERM; exec sleep 1000');
    await sleep(300);
    let answered = false;
    const patient = lives.post('/containers/deaf/stop?t=-1').then((reply) => ((answered = true), reply));
    await sleep(700);
    assert.equal(answered, false);
    assert.equal((await lives.post('/containers/deaf/stop?t=0')).status, 204);
    assert.ok([204, 304].includes((await patient).status));
    assert.equal((await lives.inspect('deaf')).State.ExitCode, 137);
  });

  test('a paused container can be stopped', async () => {
    await lives.runTrapping('web');
    await lives.ok('pause', 'web');
    await lives.ok('stop', '-t', '5', 'web');
    const { State } = await lives.inspect('web');
    assert.deepEqual(
      { status: State.Status, code: State.ExitCode, paused: State.Paused },
      { status: 'exited', code: 7, paused: false },
    );
  });
});

describe('restart', () => {
  test('of a running and of a stopped container, with its events', async () => {
    const since = now();
    const id = await lives.runTrapping('web');
    const before = await lives.inspect('web');
    await lives.ok('restart', '-t', '5', 'web');
    const running = await lives.inspect('web');
    assert.equal(running.State.Running, true);
    assert.notEqual(running.State.Pid, before.State.Pid);
    assert.ok(running.State.StartedAt > before.State.StartedAt);
    assert.equal(running.RestartCount, 0);
    await waitFor('the events', async () => (await lives.events(since, id)).includes('restart'));
    assert.deepEqual(
      (await lives.events(since, id, 'signal', 'exitCode')).filter((event) => !event.startsWith('attach')),
      ['create', 'start', 'kill signal=15', 'stop', 'die exitCode=7', 'start', 'restart'],
    );
    await lives.ok('stop', '-t', '0', 'web');
    await lives.ok('restart', 'web');
    assert.equal((await lives.inspect('web')).State.Running, true);
  });

  test('does not remove a container that removes itself', async () => {
    await lives.runTrapping('web', '--rm');
    await lives.ok('restart', '-t', '0', 'web');
    assert.equal((await lives.inspect('web')).State.Running, true);
    await lives.ok('stop', '-t', '0', 'web');
    await waitFor(
      'the removal',
      async () => (await call(lives.engine.socketPath, 'GET', '/containers/web/json')).status === 404,
    );
  });

  test('of a container whose command is gone fails and says why', async () => {
    await lives.ok('create', '--name', 'web', lives.image, '/no/such/command');
    const reply = await lives.post('/containers/web/restart');
    assert.ok(reply.status >= 400, reply.text);
    assert.match(reply.text, /no such file or directory/);
  });
});

describe('kill', () => {
  test('signals by name and number, with and without SIG', async () => {
    for (const signal of ['USR1', 'SIGUSR1', 'sigusr1', '10']) {
      await lives.runTrapping('web');
      await lives.ok('kill', '--signal', signal, 'web');
      await lives.until('web', 'the end', ({ State }) => !State.Running);
      assert.equal((await lives.inspect('web')).State.ExitCode, 8, signal);
      await lives.ok('rm', 'web');
    }
    await lives.runTrapping('web');
    assert.equal((await lives.post('/containers/web/kill?signal=RTMIN%2B3')).status, 204);
    for (const signal of ['NOPE', 'SIG', '9.5', '0'])
      await refused(lives.post(`/containers/web/kill?signal=${signal}`), 400, /invalid signal/i);
    for (const signal of ['-1', '65'])
      await refused(
        lives.post(`/containers/web/kill?signal=${signal}`),
        400,
        /the linux daemon does not support signal/,
      );
    assert.equal((await lives.post('/containers/web/kill')).status, 204);
    assert.equal((await lives.inspect('web')).State.Running, false, 'SIGKILL is answered when it has ended');
    await refused(
      lives.post('/containers/web/kill'),
      409,
      /^cannot kill container: web: container [0-9a-f]{64} is not running$/i,
    );
  });
});

describe('pause', () => {
  test('freezes, thaws and refuses what cannot be', async () => {
    await lives.runDetached('web', 'i=0; while :; do i=$((i+1)); echo $i > /tmp/n; done');
    const since = now();
    await lives.ok('pause', 'web');
    const { State, Id } = await lives.inspect('web');
    assert.deepEqual(
      { status: State.Status, running: State.Running, paused: State.Paused },
      { status: 'paused', running: true, paused: true },
    );
    const cpu = (): string => readFileSync(`/proc/${State.Pid}/stat`, 'utf8').split(' ').slice(13, 15).join(' ');
    const frozen = cpu();
    await sleep(300);
    assert.equal(cpu(), frozen);
    await refused(lives.post('/containers/web/pause'), 409, /is already paused/);
    await refused(lives.post('/containers/web/start'), 409, /cannot start a paused container, try unpause instead/);
    await refused(
      lives.post('/containers/web/exec', { Cmd: ['true'] }),
      409,
      /is paused, unpause the container before exec/,
    );
    await refused(
      call(lives.engine.socketPath, 'DELETE', '/containers/web'),
      409,
      /^cannot remove container "web": container is paused and must be unpaused first$/,
    );
    assert.equal(
      await lives
        .ok('ps', '--filter', 'status=paused', '--format', '{{.Names}} {{.Status}}')
        .then((line) => line.replace(/Up .* \(/, '(')),
      'web (Paused)',
    );
    await lives.ok('unpause', 'web');
    await refused(lives.post('/containers/web/unpause'), 500, /is not paused/);
    assert.equal((await lives.inspect('web')).State.Status, 'running');
    assert.deepEqual(await lives.events(since, Id).then((told) => told.filter((event) => event.includes('pause'))), [
      'pause',
      'unpause',
    ]);
    await lives.ok('pause', 'web');
    await lives.ok('rm', '-f', 'web');
    await lives.ok('create', '--name', 'idle', lives.image);
    await refused(lives.post('/containers/idle/pause'), 409, /is not running/);
    await refused(lives.post('/containers/idle/unpause'), 500, /^Container [0-9a-f]{64} is not paused$/);
  });
});

describe('rename', () => {
  test('changes the name everywhere, in networks too', async () => {
    await lives.ok('network', 'create', 'meadow');
    try {
      const since = now();
      const id = await lives.runDetached('old', 'sleep 1000', '--network', 'meadow');
      await lives.runDetached('asker', 'sleep 1000', '--network', 'meadow');
      await lives.ok('exec', 'asker', 'ping', '-c1', '-w5', 'old');
      await lives.ok('rename', 'old', 'new');
      assert.equal((await lives.inspect('new')).Name, '/new');
      assert.equal((await call(lives.engine.socketPath, 'GET', '/containers/old/json')).status, 404);
      await lives.ok('exec', 'asker', 'ping', '-c1', '-w5', 'new');
      assert.notEqual(
        (await attempt(lives.engine, ['exec', 'asker', 'ping', '-c1', '-w5', 'old'])).status,
        0,
        'the old name is gone',
      );
      assert.ok((await lives.events(since, id, 'oldName', 'name')).includes('rename oldName=/old name=new'));
      await lives.runDetached('old', 'true');
      await lives.ok('rm', '-f', 'old');
      await lives.ok('restart', '-t', '0', 'new');
      await lives.ok('exec', 'asker', 'ping', '-c1', '-w5', 'new');
      await lives.ok('rm', '-f', 'new', 'asker');
    } finally {
      await lives.ok('network', 'rm', 'meadow').catch(() => undefined);
    }
  });

  test('refuses names that are taken, bad, empty or the same', async () => {
    await lives.ok('create', '--name', 'one', lives.image);
    const two = await lives.ok('create', '--name', 'two', lives.image);
    await refused(
      lives.post('/containers/one/rename?name=two'),
      409,
      new RegExp(
        'Error when allocating new name: Conflict. ' +
          `The container name "/two" is already in use by container "?${two}"?. ` +
          'You have to remove \\(or rename\\) that container to be able to reuse that name.',
      ),
    );
    await refused(lives.post('/containers/one/rename?name='), 400, /Neither old nor new names may be empty/);
    await refused(
      lives.post('/containers/one/rename?name=one'),
      400,
      /Renaming a container with the same name as its current name/,
    );
    await refused(
      lives.post('/containers/one/rename?name=/one'),
      400,
      /Renaming a container with the same name as its current name/,
    );
    await refused(lives.post('/containers/one/rename?name=a%20b'), 400, /Invalid container name \(\/?a b\)/);
    await refused(lives.post('/containers/nobody/rename?name=x'), 404, /No such container: nobody/);
    assert.deepEqual((await lives.ok('ps', '-a', '--format', '{{.Names}}')).split('\n').toSorted(), ['one', 'two']);
    await lives.ok('rename', 'one', 'three');
    await lives.ok('rename', 'two', 'one');
  });
});

describe('wait', () => {
  test('each condition, and the exit of a container that is gone', async () => {
    const { Id: id } = await callJson<{ Id: string }>(lives.engine.socketPath, 'POST', '/containers/create?name=web', {
      json: { Image: lives.image, Cmd: ['sh', '-c', 'exit 9'] },
    });
    const wait = async (name: string, condition: string): Promise<number> =>
      (
        await callJson<{ StatusCode: number }>(
          lives.engine.socketPath,
          'POST',
          `/containers/${name}/wait?condition=${condition}`,
        )
      ).StatusCode;
    assert.equal(await wait('web', ''), 0);
    const waits = ['next-exit', 'removed'].map((condition) => wait('web', condition));
    let removed = false;
    void waits[1]?.then(() => (removed = true));
    await lives.ok('start', 'web');
    assert.equal(await waits[0], 9);
    assert.equal(await wait('web', 'not-running'), 9);
    await sleep(200);
    assert.equal(removed, false);
    await lives.ok('rm', 'web');
    assert.equal(await waits[1], 9);
    await refused(lives.post('/containers/web/wait'), 404, /No such container: web/);
    await lives.ok('create', '--name', 'other', lives.image);
    if (lives.engine.name === 'dockerd') return;
    await refused(lives.post('/containers/other/wait?condition=whenever'), 400, /invalid condition: "whenever"/);
    for (const condition of ['not-running', 'next-exit', 'removed']) assert.equal(await wait(id, condition), 9);
  });

  test('the headers come before the end', async () => {
    await lives.runDetached('web', 'sleep 1000');
    const reply = await open(lives.engine.socketPath, 'POST', '/containers/web/wait');
    assert.equal(reply.status, 200);
    reply.close();
  });
});

describe('out of memory', () => {
  /** The arguments of a container that gets little memory. */
  const eater = (script: string): string[] => [
    '--name=eater',
    '--memory=20m',
    '--memory-swap=20m',
    lives.image,
    'sh',
    '-c',
    script,
  ];

  test('the flag, the event and the exit code', async () => {
    const since = now();
    const { status } = await attempt(lives.engine, ['run', ...eater('tail /dev/zero')]);
    assert.equal(status, 137);
    const { State, Id } = await lives.inspect('eater');
    assert.equal(State.OOMKilled, true);
    await waitFor('the event', async () => (await lives.events(since, Id)).includes('oom'));
    await lives.ok('start', 'eater').catch(() => undefined);
    await lives.until('eater', 'the end', ({ State: again }) => !again.Running);
    await lives.runDetached('fine', 'sleep 1000', '--memory', '20m');
    await lives.ok('kill', 'fine');
    assert.equal((await lives.inspect('fine')).State.OOMKilled, false);
  });

  test('the flag is taken back by the next start', async (t) => {
    if (lives.engine.name === 'dockerd') return t.skip('that came with a later version');
    const script = 'if [ -e /tmp/again ]; then sleep 1000; fi; touch /tmp/again; tail /dev/zero';
    await lives.ok('run', '-d', ...eater(script));
    await lives.until('eater', 'its end', ({ State }) => State.OOMKilled && !State.Running);
    await lives.ok('start', 'eater');
    assert.equal((await lives.inspect('eater')).State.OOMKilled, false);
  });
});
