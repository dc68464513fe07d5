/**
 * The unmodified docker CLI and containers in the background, and what is committed from them. The same file passes
 * against the original (ENGINE_UNDER_TEST=dockerd), which is what makes these expectations more than our opinion.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { cliCalls, CliSession, TERMINAL } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { idIn, testedStore } from '../support/tested-store.js';
import { waitFor } from '../support/wait.js';

const CONTAINER_ID = /^[0-9a-f]{64}$/;

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let image: string;

before(async () => {
  ({ engine, registry, image } = await startEngineWithRegistry(cleanup));
});

after(() => cleanup.run());

const { cli, ok, field } = cliCalls(() => engine);

describe('containers in the background', () => {
  test('run -d, ps, logs, stop, ps -a, rm', async () => {
    const id = await ok('run', '-d', '--name', 'worker', image, 'sh', '-c', 'echo one; echo two >&2; exec sleep 1000');
    assert.match(id, CONTAINER_ID);
    assert.match(
      await ok('ps', '--no-trunc', '--format', '{{.ID}} {{.Names}} {{.Image}} {{.Status}}'),
      new RegExp(`^${id} worker ${image} Up (Less than a|\\d+) second`),
    );
    await waitFor('the output', async () => (await cli(['logs', 'worker'])).stderr === 'two\n');
    assert.equal((await cli(['logs', 'worker'])).stdout, 'one\n');

    // sleep as the first process of a container ignores TERM, so it takes the second signal.
    assert.equal(await ok('stop', '-t', '1', 'worker'), 'worker');
    assert.equal(await ok('ps', '-q'), '');
    assert.match(await ok('ps', '-a', '--format', '{{.Names}} {{.Status}}'), /^worker Exited \(137\) /);
    assert.equal(await field('worker', '{{.State.Status}} {{.State.ExitCode}} {{.State.Running}}'), 'exited 137 false');
    assert.equal(await ok('stop', 'worker'), 'worker');
    assert.equal(await ok('rm', 'worker'), 'worker');
    const again = await cli(['rm', 'worker']);
    assert.equal(again.status, 1);
    assert.match(again.stderr, /No such container: worker/);
  });

  test('start, start -a and restart of a container that has ended', async () => {
    await ok('create', '--name', 'again', image, 'echo', 'once more');
    assert.equal(await field('again', '{{.State.Status}}'), 'created');
    assert.deepEqual(await cli(['start', '-a', 'again']), { status: 0, stdout: 'once more\n', stderr: '' });
    assert.equal(await ok('start', 'again'), 'again');
    assert.equal(await ok('wait', 'again'), '0');
    assert.equal(await ok('logs', 'again'), 'once more\nonce more');
    await ok('rm', 'again');
  });

  test('logs: tail, timestamps, since and until', async () => {
    await ok('run', '--name', 'talker', image, 'sh', '-c', 'for i in 1 2 3; do echo line $i; sleep 0.3; done');
    assert.equal(await ok('logs', '--tail', '1', 'talker'), 'line 3');
    const stamped = (await ok('logs', '-t', 'talker')).split('\n');
    assert.equal(stamped.length, 3);
    for (const line of stamped) assert.match(line, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z line \d$/);
    const second = stamped[1]?.split(' ')[0] ?? '';
    assert.equal(await ok('logs', '--since', second, 'talker'), 'line 2\nline 3');
    assert.equal(await ok('logs', '--until', second, 'talker'), 'line 1\nline 2');
    await ok('rm', 'talker');
  });

  test('logs -f follows until the container ends', async () => {
    await ok(
      'run',
      '-d',
      '--name',
      'counter',
      image,
      'sh',
      '-c',
      'echo tick 0; until [ -e /go ]; do sleep 0.05; done; for i in 1 2 3 4 5 6 7; do echo tick $i; sleep 0.05; done',
    );
    const session = new CliSession(engine, ['logs', '-f', 'counter']);
    await session.output(/tick 0/);
    assert.equal(await field('counter', '{{.State.Running}}'), 'true');
    await ok('exec', 'counter', 'touch', '/go');
    const { status, stdout } = await session.ended();
    assert.equal(status, 0);
    assert.equal(stdout, Array.from({ length: 8 }, (_, index) => `tick ${index}\n`).join(''));
    await ok('rm', 'counter');
  });

  test('attach shows the output from now on and ends with the exit status', async () => {
    await ok(
      'run',
      '-d',
      '--name',
      'spoken',
      image,
      'sh',
      '-c',
      'trap "exit 4" TERM; i=0; while :; do echo word $i; i=$((i+1)); sleep 0.1; done',
    );
    const session = new CliSession(engine, ['attach', '--no-stdin', 'spoken']);
    await session.output(/word \d+\nword/);
    session.kill('SIGTERM');
    assert.equal((await session.ended()).status, 4);
    await ok('rm', 'spoken');
  });

  test('attach gives stdin to a container that keeps it open', async () => {
    await ok(
      'run',
      '-di',
      '--name',
      'echoing',
      image,
      'sh',
      '-c',
      'while read line; do echo "<$line>"; [ "$line" = end ] && exit 0; done',
    );
    const session = new CliSession(engine, ['attach', 'echoing']);
    session.write('first\n');
    await session.output(/<first>/);
    session.write('end\n');
    const { status, stdout } = await session.ended();
    assert.equal(status, 0);
    assert.equal(stdout, '<first>\n<end>\n');
    await ok('rm', 'echoing');
  });

  test('the detach keys leave a terminal container running', async () => {
    await ok('run', '-dit', '--name', 'detached', image, 'sh');
    const session = new CliSession(engine, ['attach', 'detached'], { terminal: TERMINAL });
    session.write('echo here$((1+1))\r');
    await session.output(/here2/);
    session.write('\u0010\u0011');
    const { stdout } = await session.ended();
    assert.match(stdout, /read escape sequence/);
    assert.equal(await field('detached', '{{.State.Running}}'), 'true');
    await ok('rm', '-f', 'detached');
  });

  test('kill: a chosen signal, the default, and a container that does not run', async () => {
    await ok(
      'run',
      '-d',
      '--name',
      'victim',
      image,
      'sh',
      '-c',
      'trap "echo hup" HUP; echo ready; while :; do sleep 1000 & wait; done',
    );
    await waitFor('the trap', async () => (await ok('logs', 'victim')) === 'ready');
    assert.equal(await ok('kill', '-s', 'HUP', 'victim'), 'victim');
    await waitFor('the signal', async () => (await ok('logs', 'victim')) === 'ready\nhup');
    assert.equal(await ok('kill', 'victim'), 'victim');
    await waitFor(
      'the end',
      async () => (await field('victim', '{{.State.Status}} {{.State.ExitCode}}')) === 'exited 137',
    );
    const again = await cli(['kill', 'victim']);
    assert.equal(again.status, 1);
    assert.match(again.stderr, /is not running/);
    await ok('rm', 'victim');
  });

  test('a running container is removed only by force', async () => {
    await ok('run', '-d', '--name', 'firm', image, 'sleep', '1000');
    const refused = await cli(['rm', 'firm']);
    assert.equal(refused.status, 1);
    assert.match(refused.stderr, /cannot remove .*running|container is running/);
    assert.equal(await ok('rm', '-f', 'firm'), 'firm');
    assert.equal(await ok('ps', '-aq'), '');
  });

  test('a name in use and an image in use are refused', async () => {
    await ok('create', '--name', 'taken', image);
    const name = await cli(['create', '--name', 'taken', image]);
    assert.equal(name.status, 1);
    assert.match(name.stderr, /Conflict\. The container name "\/taken" is already in use by container "[0-9a-f]{64}"/);
    const used = await cli(['rmi', image]);
    assert.equal(used.status, 1);
    assert.match(
      used.stderr,
      /unable to remove repository reference .* \(must force\) - container \w{12} is using its referenced image \w{12}/,
    );
    await ok('rm', 'taken');
  });

  test('ps filters', async () => {
    await ok('create', '--name', 'filter-a', '--label', 'tier=web', image);
    await ok('create', '--name', 'filter-b', '--label', 'tier=db', image);
    const names = async (...filters: string[]): Promise<string> =>
      ok('ps', '-a', '--format', '{{.Names}}', ...filters.flatMap((filter) => ['--filter', filter]));
    assert.equal(await names('label=tier=web'), 'filter-a');
    assert.equal(await names('label=tier', 'name=b$'), 'filter-b');
    assert.equal(await names('status=running'), '');
    assert.equal(await names(`ancestor=${image}`, 'status=created'), 'filter-b\nfilter-a');
    await ok('rm', 'filter-a', 'filter-b');
  });
});

describe('commit', () => {
  test('what the engine itself puts into a root file system is no change', async () => {
    await ok('run', '--name', 'quiet', image, 'sh', '-c', 'test -e /.dockerenv && test -L /etc/mtab');
    try {
      assert.equal(await ok('diff', 'quiet'), '');
      await ok('start', 'quiet');
      await ok('wait', 'quiet');
      assert.equal(await ok('diff', 'quiet'), '');
    } finally {
      await ok('rm', 'quiet');
    }
  });

  test('a changed container becomes an image that runs', async () => {
    await ok(
      'run',
      '--name',
      'author',
      image,
      'sh',
      '-c',
      'echo made > /made; rm /etc/motd; mkdir /dir; ln -s /made /dir/link',
    );
    const id = await ok(
      'commit',
      '-a',
      'Somebody',
      '-m',
      'a change',
      '-c',
      'ENV COLOUR=green',
      '-c',
      'CMD ["cat", "/dir/link"]',
      'author',
      'local/made:1',
    );
    assert.match(id, /^sha256:[0-9a-f]{64}$/);
    assert.equal(await field('local/made:1', '{{.Id}} {{.Author}} {{.Comment}}'), `${id} Somebody a change`);
    assert.equal(
      await field('local/made:1', '{{len .RootFS.Layers}} {{.Parent}}'),
      `3 ${idIn(testedStore(), registry.image)}`,
    );
    assert.equal(await ok('run', '--rm', 'local/made:1'), 'made');
    assert.equal(
      await ok('run', '--rm', 'local/made:1', 'sh', '-c', 'echo $COLOUR; ls /etc/motd 2>&1 || true'),
      'green\nls: /etc/motd: No such file or directory',
    );
    await ok('rm', 'author');
    await ok('rmi', 'local/made:1');
  });
});
