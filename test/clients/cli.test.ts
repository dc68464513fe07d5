/**
 * The unmodified docker CLI against the daemon. The same file passes against the original (ENGINE_UNDER_TEST=dockerd),
 * which is what makes these expectations more than our opinion.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { cliCalls, CliSession, TERMINAL } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { pullAndImages } from '../support/images-by-cli.js';
import { shownName, testedStore } from '../support/tested-store.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let image: string;
const store = testedStore();

before(async () => {
  ({ engine, registry, image } = await startEngineWithRegistry(cleanup));
});

after(() => cleanup.run());

const { cli, ok, field } = cliCalls(() => engine);

describe('pull and images', () => pullAndImages(() => ({ engine, registry, image, store })));

describe('run', () => {
  test('run --rm echo prints and leaves nothing', async () => {
    assert.deepEqual(await cli(['run', '--rm', image, 'echo', 'hi']), { status: 0, stdout: 'hi\n', stderr: '' });
    await waitFor('the container to be gone', async () => (await ok('ps', '-aq')) === '');
  });

  test('a missing image is pulled', async () => {
    await ok('rmi', image);
    const { status, stdout, stderr } = await cli(['run', '--rm', image, 'cat', '/etc/motd']);
    assert.equal(status, 0, stderr);
    assert.equal(stdout, 'hello from the second layer\n');
    assert.match(stderr, /^Unable to find image .* locally\n/);
  });

  test('stdout and stderr come apart', async () => {
    assert.deepEqual(await cli(['run', '--rm', image, 'sh', '-c', 'echo out; echo err >&2']), {
      status: 0,
      stdout: 'out\n',
      stderr: 'err\n',
    });
  });

  test('the exit status is the one of the command', async () => {
    assert.equal((await cli(['run', '--rm', image, 'sh', '-c', 'exit 7'])).status, 7);
  });

  test('what cannot be run gives 127, 126 and 125', async () => {
    const missing = await cli(['run', '--rm', image, 'no-such-program']);
    assert.equal(missing.status, 127, missing.stderr);
    assert.match(missing.stderr, /executable file not found in \$PATH/);
    // Without --rm the client waits for the next exit, and would print what the answer says of an error.
    const kept = await cli(['run', '--name', 'kept', image, 'no-such-program']);
    assert.equal(kept.status, 127, kept.stderr);
    assert.doesNotMatch(kept.stderr, /Error waiting/);
    await ok('rm', 'kept');
    const forbidden = await cli(['run', '--rm', image, '/etc/passwd']);
    assert.equal(forbidden.status, 126, forbidden.stderr);
    assert.match(forbidden.stderr, /permission denied/);
    const unknown = await cli(['run', '--rm', `${registry.host}/test/nothing:1`, 'true']);
    assert.equal(unknown.status, 125, unknown.stderr);
    assert.equal(await ok('ps', '-aq'), '');
  });

  test('stdin reaches the container and its end does too', async () => {
    const input = `${'x'.repeat(99)}\n`.repeat(10_000);
    const { status, stdout } = await cli(['run', '--rm', '-i', image, 'cat'], { input });
    assert.equal(status, 0);
    assert.equal(stdout.length, input.length);
    assert.ok(stdout === input);
  });

  test('environment, directory, user, host name and entrypoint', async () => {
    const script = 'echo $A $HOSTNAME $HOME; pwd; id -u; hostname; cat /etc/hostname';
    const stdout = await ok(
      'run',
      '--rm',
      '-e',
      'A=b',
      '-w',
      '/tmp',
      '-u',
      'nobody',
      '-h',
      'box',
      '--entrypoint',
      'sh',
      image,
      '-c',
      script,
    );
    assert.equal(stdout, 'b box /home\n/tmp\n65534\nbox\nbox');
  });

  test('a container has an address on the bridge and knows itself', async () => {
    const stdout = await ok(
      'run',
      '--rm',
      '--name',
      'addressed',
      image,
      'sh',
      '-c',
      'ip -4 -o addr show eth0; ip route; cat /etc/hosts',
    );
    const address = /inet (\S+)\/\d+/.exec(stdout)?.[1] ?? '';
    assert.match(stdout, /default via \S+ dev eth0/);
    assert.ok(
      stdout.split('\n').some((line) => line.startsWith(`${address}\t`)),
      stdout,
    );
  });

  test('network none and host', async () => {
    assert.equal(await ok('run', '--rm', '--network', 'none', image, 'ls', '/sys/class/net'), 'lo');
    const host = await ok('run', '--rm', '--network', 'host', image, 'ip', '-o', 'link');
    assert.doesNotMatch(host, /eth0@/);
  });

  test('limits reach the control groups', async () => {
    const script =
      'cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max ' +
      '/sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null';
    const stdout = (await cli(['run', '--rm', '-m', '64m', '--pids-limit', '50', image, 'sh', '-c', script])).stdout;
    assert.equal(stdout, '67108864\n50\n');
  });

  test('run -it has a terminal of the right size', async () => {
    const session = new CliSession(engine, ['run', '--rm', '-it', image], { terminal: TERMINAL });
    await session.output(/# /);
    // The size may come a moment after the prompt.
    await waitFor('the size of the terminal', () => {
      session.write('stty size\r');
      return session.output(/30 120/, 300).catch(() => undefined);
    });
    session.write('tty; echo $TERM\r');
    await session.output(/\/dev\/pts\/0\r\nxterm/);
    session.write('exit 3\r');
    const { status, stdout } = await session.ended();
    assert.equal(status, 3, stdout);
  });

  test('signals are forwarded', async () => {
    const session = new CliSession(engine, [
      'run',
      '--rm',
      image,
      'sh',
      '-c',
      'trap "echo got it; exit 5" TERM; echo ready; sleep 1000 & wait',
    ]);
    await session.output(/ready/);
    session.kill('SIGTERM');
    const { status, stdout } = await session.ended();
    assert.equal(stdout, 'ready\ngot it\n');
    assert.equal(status, 5);
  });
});

describe('the daemon itself', () => {
  test('version and info', async () => {
    const [client, server, os] = (
      await ok('version', '--format', '{{.Client.APIVersion}} {{.Server.APIVersion}} {{.Server.Os}}')
    ).split(' ');
    assert.match(client ?? '', /^1\.\d+$/);
    assert.match(server ?? '', /^1\.\d+$/);
    assert.equal(os, 'linux');
    assert.match(await ok('version'), /Server:/);

    await ok('create', '--name', 'counted', image);
    const info = await ok(
      'info',
      '--format',
      '{{.Containers}} {{.ContainersStopped}} {{.Images}} {{.Driver}} {{.LoggingDriver}} {{.OSType}} ' +
        '{{.DefaultRuntime}}',
    );
    assert.equal(info, `1 1 1 ${shownName(store)} json-file linux runc`);
    assert.match(await ok('info'), new RegExp(`Storage Driver: ${shownName(store)}\n`));
    await ok('rm', 'counted');
  });

  test('events tell the life of a container, live and from history', async () => {
    const since = String(Date.now() / 1000);
    const session = new CliSession(engine, ['events', '--format', '{{.Type}} {{.Action}}']);
    // The CLI says nothing when it has subscribed: an event made over and over tells it.
    await waitFor('the subscription', async () => {
      await ok('tag', image, 'local/probe:1');
      return session.output(/image tag/, 200).catch(() => undefined);
    });
    await ok('run', '--rm', image, 'true');
    await session.output(/container destroy/);
    session.kill('SIGTERM');
    const { stdout } = await session.ended();
    const life = stdout.split('\n').filter((line) => /^(container|network) /.test(line));
    assert.deepEqual(life, [
      'container create',
      'container attach',
      'network connect',
      'container start',
      'container die',
      'network disconnect',
      'container destroy',
    ]);

    await ok('rmi', 'local/probe:1');
    const history = await ok(
      'events',
      '--since',
      since,
      '--until',
      String(Date.now() / 1000 + 1),
      '--filter',
      'type=container',
      '--format',
      '{{.Action}} {{.Actor.Attributes.image}}',
    );
    assert.deepEqual(
      history.split('\n'),
      ['create', 'attach', 'start', 'die', 'destroy'].map((action) => `${action} ${image}`),
    );
  });
});

test('what other tests do by requests has the outcome that it has with the CLI', async () => {
  const refusal = (work: Promise<string>): Promise<string> =>
    work.then(
      () => assert.fail('is not refused'),
      (error: Error) => error.message,
    );
  const both = async (...args: string[]): Promise<void> =>
    assert.equal(await engineOk(engine, args), await ok(...args), args.join(' '));
  const refused = async (...args: string[]): Promise<void> => {
    // The CLI may say more, of what else it was given.
    const [ours, theirs] = [await refusal(engineOk(engine, args)), await refusal(ok(...args))];
    assert.equal(theirs.slice(0, ours.length), ours);
  };
  await ok('volume', 'create', 'used');
  const made = [await ok('create', '--name', 'made', '-v', 'used:/v', image, 'sleep', '1000')];
  made.push(
    await engineOk(engine, ['run', '-d', '--name', 'up', '--network', 'none', '--init', image, 'sleep', '9999']),
  );
  try {
    assert.equal(
      await field('up', '{{.State.Running}} {{.HostConfig.NetworkMode}} {{.HostConfig.Init}}'),
      'true none true',
    );
    assert.equal(await field('up', '{{.Path}} {{.Args}}'), 'sleep [9999]');
    await refused('create', '--name', 'up', image);
    await assert.rejects(engineOk(engine, ['run', '-d', '--name', 'up', image]), /ended with 125: .*Conflict/);
    await both('exec', 'up', 'sh', '-c', 'echo one; echo two >&2');
    await refused('exec', 'up', 'sh', '-c', 'echo one; echo two >&2; exit 3');
    await refused('exec', 'made', 'true');
    await refused('exec', 'none', 'true');
    await refused('start', 'up', 'none');
    await refused('pause', 'made');
    assert.equal(await engineOk(engine, ['pause', 'up']), 'up');
    await refused('pause', 'up');
    assert.equal(await engineOk(engine, ['unpause', 'up']), 'up');
    await refused('unpause', 'up');
    await refused('kill', 'made');
    await refused('stop', '-t', '0', 'none');
    await refused('restart', '-t', '0', 'up', 'none');
    await refused('rm', 'up', 'none');
    await both('rm', '-f', 'none');
    await refused('volume', 'rm', 'used', 'none');
    await both('volume', 'rm', '-f', 'none');
    await refused('network', 'rm', 'bridge', 'none');
    await engineOk(engine, ['kill', '-s', 'TERM', 'up']);
    await engineOk(engine, ['rm', '-f', '-v', ...made]);
    assert.equal(await ok('ps', '-aq'), '');
  } finally {
    await ok('rm', '-f', ...made);
    await ok('volume', 'rm', 'used');
  }
});
