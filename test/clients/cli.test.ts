/**
 * The unmodified docker CLI against the daemon. The same file passes against the original (ENGINE_UNDER_TEST=dockerd),
 * which is what makes these expectations more than our opinion.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { CliSession, docker, dockerOk, type CliOptions, type CliResult } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { waitFor } from '../support/wait.js';

const CONTAINER_ID = /^[0-9a-f]{64}$/;
const TERMINAL = { rows: 30, columns: 120 };

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let image: string;

before(async () => {
  ({ engine, registry, image } = await startEngineWithImage(cleanup));
});

after(() => cleanup.run());

function cli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  return docker(engine, args, options);
}

function ok(...args: string[]): Promise<string> {
  return dockerOk(engine, args);
}

/** `{{.Field}}` of an object. */
function field(name: string, template: string): Promise<string> {
  return ok('inspect', '--format', template, name);
}

describe('pull and images', () => {
  test('a first pull shows each layer and ends with digest and status', async () => {
    await ok('rmi', image);
    const lines = (await ok('pull', image)).split('\n');
    assert.equal(lines[0], '1.0: Pulling from test/busybox');
    for (const { digest } of registry.image.layers) {
      const id = digest.slice('sha256:'.length, 'sha256:'.length + 12);
      for (const phase of ['Pulling fs layer', 'Download complete', 'Pull complete'])
        assert.ok(lines.includes(`${id}: ${phase}`), `${id}: ${phase} in ${lines.join('\n')}`);
    }
    assert.deepEqual(lines.slice(-3), [
      `Digest: ${registry.image.digest}`,
      `Status: Downloaded newer image for ${image}`,
      image,
    ]);
  });

  test('a second pull says that the image is up to date', async () => {
    const lines = (await ok('pull', image)).split('\n');
    assert.deepEqual(lines, [
      '1.0: Pulling from test/busybox',
      `Digest: ${registry.image.digest}`,
      `Status: Image is up to date for ${image}`,
      image,
    ]);
  });

  test('pull by digest', async () => {
    const reference = `${registry.host}/test/busybox@${registry.image.digest}`;
    assert.match(await ok('pull', reference), new RegExp(`Status: Image is up to date for ${reference}`));
  });

  test('pull on a terminal draws progress', async () => {
    await ok('rmi', '-f', registry.image.id);
    const { status, stdout } = await cli(['pull', image], { terminal: TERMINAL });
    assert.equal(status, 0, stdout);
    assert.match(stdout, /Pull complete/);
    assert.match(stdout, /\[=+>/);
  });

  test('unknown tags and repositories are refused', async () => {
    const tag = await cli(['pull', `${registry.host}/test/busybox:nope`]);
    assert.equal(tag.status, 1);
    assert.match(tag.stderr, new RegExp(`manifest for ${registry.host}/test/busybox:nope not found: manifest unknown`));
    const repository = await cli(['pull', `${registry.host}/no/such:1`]);
    assert.equal(repository.status, 1);
    assert.match(repository.stderr, /not found|does not exist/);
  });

  test('images lists name, tag, ID and digest', async () => {
    const row = await ok(
      'images',
      '--digests',
      '--no-trunc',
      '--format',
      '{{.Repository}} {{.Tag}} {{.Digest}} {{.ID}}',
    );
    assert.equal(row, `${registry.host}/test/busybox 1.0 ${registry.image.digest} ${registry.image.id}`);
    assert.equal(await ok('images', '-q', '--no-trunc', '--filter', 'label=flavour=plain'), registry.image.id);
    assert.equal(await ok('images', '-q', '--filter', 'label=flavour=other'), '');
    assert.match(await ok('images'), /^REPOSITORY +TAG +IMAGE ID +CREATED +SIZE\n/);
  });

  test('inspect shows the configuration and the layers', async () => {
    assert.equal(
      await field(image, '{{.Id}} {{.Os}}/{{.Architecture}} {{json .Config.Cmd}}'),
      `${registry.image.id} linux/amd64 ["sh"]`,
    );
    assert.deepEqual(
      JSON.parse(await field(image, '{{json .RootFS.Layers}}')),
      registry.image.layers.map((layer) => layer.diffId),
    );
    assert.deepEqual(JSON.parse(await field(image, '{{json .RepoDigests}}')), [
      `${registry.host}/test/busybox@${registry.image.digest}`,
    ]);
  });

  test('history shows one line a layer, newest first', async () => {
    const lines = (await ok('history', '--no-trunc', '--format', '{{.ID}}|{{.CreatedBy}}', image)).split('\n');
    assert.deepEqual(lines, [`${registry.image.id}|layer 1`, '<missing>|layer 0']);
  });

  test('tag and rmi', async () => {
    await ok('tag', image, 'local/copy:two');
    assert.equal(await field('local/copy:two', '{{.Id}}'), registry.image.id);
    assert.equal(await ok('rmi', 'local/copy:two'), 'Untagged: local/copy:two');
    const again = await cli(['rmi', 'local/copy:two']);
    assert.equal(again.status, 1);
    assert.match(again.stderr, /No such image: local\/copy:two/);
  });

  test('rmi of the last name deletes image and layers; it can be pulled again', async () => {
    const lines = (await ok('rmi', image)).split('\n');
    assert.deepEqual(lines.slice(0, 3), [
      `Untagged: ${image}`,
      `Untagged: ${registry.host}/test/busybox@${registry.image.digest}`,
      `Deleted: ${registry.image.id}`,
    ]);
    assert.equal(lines.filter((line) => line.startsWith('Deleted: sha256:')).length, 3);
    assert.equal(await ok('images', '-q'), '');
    await ok('pull', '-q', image);
  });
});

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
      'cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null';
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
      'trap "echo got it; exit 5" TERM; echo ready; while :; do sleep 0.1; done',
    ]);
    await session.output(/ready/);
    session.kill('SIGTERM');
    const { status, stdout } = await session.ended();
    assert.equal(stdout, 'ready\ngot it\n');
    assert.equal(status, 5);
  });
});

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
      'trap "echo hup" HUP; echo ready; while :; do sleep 0.1; done',
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
      /conflict: unable to remove repository reference .* \(must force\) - container [0-9a-f]{12} is using its referenced image [0-9a-f]{12}/,
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
    assert.equal(await field('local/made:1', '{{len .RootFS.Layers}} {{.Parent}}'), `3 ${registry.image.id}`);
    assert.equal(await ok('run', '--rm', 'local/made:1'), 'made');
    assert.equal(
      await ok('run', '--rm', 'local/made:1', 'sh', '-c', 'echo $COLOUR; ls /etc/motd 2>&1 || true'),
      'green\nls: /etc/motd: No such file or directory',
    );
    await ok('rm', 'author');
    await ok('rmi', 'local/made:1');
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
      '{{.Containers}} {{.ContainersStopped}} {{.Images}} {{.Driver}} {{.LoggingDriver}} {{.OSType}} {{.DefaultRuntime}}',
    );
    assert.equal(info, '1 1 1 overlay2 json-file linux runc');
    assert.match(await ok('info'), /Storage Driver: overlay2/);
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
