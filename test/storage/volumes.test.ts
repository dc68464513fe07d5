/** Volumes as clients use them: options of the local driver, what fills them, who keeps them, filters, events. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { volumeCalls } from '../support/volume-calls.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
const temp = mkdtempSync(join(tmpdir(), 'volumes-test-'));
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const { ok, cli, create, listed, inspect, isMounted } = volumeCalls(() => engine);

describe('local driver options', () => {
  test('refusals', async () => {
    const refused: [unknown, RegExp][] = [
      [{ Name: 'v1', DriverOpts: { type: 'tmpfs' } }, /create v1: missing required option: \\"device\\"/],
      [{ Name: 'v2', DriverOpts: { device: '/x' } }, /create v2: missing required option: \\"type\\"/],
      [{ Name: 'v3', DriverOpts: { foo: 'x' } }, /create v3: invalid option: \\"foo\\"/],
      [{ Name: 'v4', DriverOpts: { size: '1m' } }, /create v4: quota size requested but no quota support/],
      [{ Name: 'v' }, /create v: volume name is too short, names should be at least two alphanumeric characters/],
      [{ Name: 'a!b' }, /create a!b: \\"a!b\\" includes invalid characters for a local volume name/],
    ];
    for (const [json, text] of refused) {
      const reply = await create(json);
      assert.equal(reply.status, 400, reply.text);
      assert.match(reply.text, text);
    }
    assert.equal((await create({ Name: 'v5', Driver: 'nope' })).status, 404);
    assert.deepEqual(await listed(), []);
  });

  test('a tmpfs is mounted with the first user and gone after the last', async () => {
    await ok(
      'volume',
      'create',
      '--opt',
      'type=tmpfs',
      '--opt',
      'device=tmpfs',
      '--opt',
      'o=size=1m,uid=5,noexec',
      'fast',
    );
    const { Mountpoint } = await inspect('fast');
    assert.equal(isMounted(Mountpoint), false);
    const one = await ok('run', '-d', '-v', 'fast:/f', image, 'sh', '-c', 'echo shared >/f/x; exec sleep 1000');
    assert.equal(isMounted(Mountpoint), true);
    assert.match(
      await ok(
        'run',
        '--rm',
        '-v',
        'fast:/f',
        image,
        'sh',
        '-c',
        'while [ ! -s /f/x ]; do :; done; cat /f/x; stat -c %u /f; grep " /f " /proc/self/mounts',
      ),
      /^shared\n5\ntmpfs \/f tmpfs rw.*noexec.*size=1024k.*uid=5/,
    );
    assert.equal(isMounted(Mountpoint), true);
    await ok('rm', '-f', one);
    assert.equal(isMounted(Mountpoint), false);
    assert.equal(await ok('run', '--rm', '-v', 'fast:/f', image, 'ls', '/f'), '');
    await ok('volume', 'rm', 'fast');
  });

  test('a bind of a host directory: used, copied from and to, and left alone by the removal', async () => {
    const host = join(temp, 'host');
    mkdirSync(host);
    writeFileSync(join(host, 'precious'), 'p');
    await ok('volume', 'create', '--opt', 'type=none', '--opt', `device=${host}`, '--opt', 'o=bind', 'bound');
    assert.equal(await ok('run', '--rm', '-v', 'bound:/b', image, 'sh', '-c', 'touch /b/made; cat /b/precious'), 'p');
    await ok('create', '--name', 'resting', '-v', 'bound:/b', image, 'true');
    const put = await call(engine.socketPath, 'PUT', '/containers/resting/archive?path=/b', {
      body: tarOf([{ path: 'copied', content: 'c' }]),
    });
    assert.equal(put.status, 200, put.text);
    assert.equal((await call(engine.socketPath, 'HEAD', '/containers/resting/archive?path=/b/precious')).status, 200);
    assert.equal(isMounted((await inspect('bound')).Mountpoint), false);
    await ok('rm', 'resting');
    await ok('volume', 'rm', 'bound');
    assert.deepEqual(readdirSync(host).toSorted(), ['copied', 'made', 'precious']);
  });

  test('what cannot be mounted is said at the start of the container, and leaves nothing', async () => {
    await ok('volume', 'create', '--opt', 'type=none', '--opt', 'device=/no/such/dir', '--opt', 'o=bind', 'broken');
    const { status, stderr } = await cli('run', '--rm', '-v', 'broken:/b', image, 'true');
    assert.equal(status, 127);
    assert.match(
      stderr,
      /volume '.*\/broken\/_data': failed to mount local volume: mount \/no\/such\/dir:.*, flags: 0x1000: no such file/,
    );
    assert.equal(await ok('ps', '-aq'), '');
    await ok('volume', 'rm', 'broken');
    const secrets = 'o=username=me,password=secret1,pass2=secret2';
    await ok('volume', 'create', '--opt', 'type=cifs', '--opt', 'device=//127.0.0.1/x', '--opt', secrets, 'share');
    const share = await cli('run', '--rm', '-v', 'share:/s', image, 'true');
    assert.match(share.stderr, /failed to mount local volume: .*data: username=me,password=\*{8}/);
    if (!onDockerd) assert.doesNotMatch(share.stderr + engine.log, /secret[12]/);
    await ok('volume', 'rm', 'share');
  });

  test('a daemon that is killed finds its mounts again', { skip: onDockerd }, async () => {
    await ok('volume', 'create', '--opt', 'type=tmpfs', '--opt', 'device=tmpfs', 'kept');
    await ok('volume', 'create', '--opt', 'type=tmpfs', '--opt', 'device=tmpfs', 'left');
    const mountpoints = [(await inspect('kept')).Mountpoint, (await inspect('left')).Mountpoint];
    const id = await ok('run', '-d', '-v', 'kept:/k', image, 'sh', '-c', 'echo still >/k/x; exec sleep 1000');
    const other = await ok('run', '-d', '-v', 'left:/l', image, 'sleep', '1000');
    const pid = Number(await ok('inspect', '-f', '{{.State.Pid}}', other));
    await engine.stop('SIGKILL');
    process.kill(pid, 'SIGKILL');
    await engine.start();
    while ((await ok('inspect', '-f', '{{.State.Running}}', other)) === 'true');
    assert.equal(await ok('run', '--rm', '-v', 'kept:/k', image, 'cat', '/k/x'), 'still');
    await ok('rm', '-f', id, other);
    assert.deepEqual(mountpoints.map(isMounted), [false, false]);
    await ok('volume', 'rm', 'kept', 'left');
  });
});

describe('copy-up', () => {
  test('an empty volume takes what the image has, also when it is old; others and nocopy do not', async () => {
    await ok('volume', 'create', 'old');
    await ok('run', '--rm', '-v', 'old:/mnt', image, 'true');
    assert.match(await ok('run', '--rm', '-v', 'old:/etc', image, 'ls', '/etc'), /passwd/);
    await ok('run', '--rm', '-v', 'old:/v', image, 'sh', '-c', 'rm /v/passwd; echo mine >/v/group');
    assert.equal(
      await ok('run', '--rm', '-v', 'old:/etc', image, 'sh', '-c', 'ls /etc | grep -c passwd; cat /etc/group'),
      '0\nmine',
    );
    assert.equal(
      await ok('run', '--rm', '-v', 'none:/etc:nocopy', image, 'sh', '-c', 'ls /etc | grep -c passwd; true'),
      '0',
    );
    assert.equal(
      await ok(
        'run',
        '--rm',
        '--mount',
        'type=volume,src=none2,dst=/etc,volume-nocopy',
        image,
        'sh',
        '-c',
        'ls /etc | grep -c passwd; true',
      ),
      '0',
    );
    await ok('volume', 'create', '--opt', 'type=tmpfs', '--opt', 'device=tmpfs', 'ram');
    // Taken at the creation, forgotten with the last user.
    assert.equal(await ok('run', '--rm', '-v', 'ram:/etc', image, 'sh', '-c', 'ls /etc | grep -c passwd; true'), '0');
    await ok('volume', 'rm', 'old', 'none', 'none2', 'ram');
  });

  // With the other engine one of them fails over the other's files.
  test('two containers at once fill one volume once', { skip: onDockerd }, async () => {
    await ok('volume', 'create', 'both');
    const made = await Promise.all(
      [1, 2, 3, 4].map((n) => ok('create', '--name', `both${n}`, '-v', 'both:/bin', image, 'true')),
    );
    assert.equal(made.length, 4);
    assert.match(await ok('run', '--rm', '-v', 'both:/v', image, 'ls', '/v'), /^busybox$/m);
    await ok('rm', 'both1', 'both2', 'both3', 'both4');
    await ok('volume', 'rm', 'both');
  });
});

describe('users', () => {
  test('a volume in use stays, whoever asks; anonymous ones go with their last user', async () => {
    const one = await ok('create', '--name', 'one', '-v', 'data:/d:ro', '-v', '/anon', image, 'true');
    const two = await ok('create', '--name', 'two', '--volumes-from', 'one', image, 'true');
    const mounts = JSON.parse(await ok('inspect', '-f', '{{json .Mounts}}', 'two')) as {
      Type: string;
      Name: string;
      Destination: string;
      RW: boolean;
    }[];
    assert.deepEqual(mounts.map(({ Destination, RW }) => `${Destination} ${RW}`).toSorted(), [
      '/anon true',
      '/d false',
    ]);
    const anonymous = mounts.find(({ Destination }) => Destination === '/anon')?.Name ?? '';
    for (const query of ['', '?force=1']) {
      const reply = await call(engine.socketPath, 'DELETE', `/volumes/data${query}`);
      assert.equal(reply.status, 409);
      const ids =
        /^\{"message":"remove data: volume is in use - \[(.*)\]"\}\n$/.exec(reply.text)?.[1]?.split(', ') ?? [];
      // The other engine counts some only while they run.
      if (onDockerd) assert.ok(ids.includes(one) || ids.includes(two));
      else assert.deepEqual(ids.toSorted(), [one, two].toSorted());
    }
    await ok('rm', '-v', 'one');
    assert.deepEqual(await listed(), [anonymous, 'data'].toSorted());
    await ok('rm', '-v', 'two');
    assert.deepEqual(await listed(), ['data']);
    await ok('volume', 'rm', 'data');
    assert.equal(
      (await call(engine.socketPath, 'DELETE', '/volumes/data')).text,
      '{"message":"get data: no such volume"}\n',
    );
    assert.equal((await call(engine.socketPath, 'DELETE', '/volumes/data?force=1')).status, 204);
  });

  test('modes of volumes from others, and of binds', async () => {
    await ok('create', '--name', 'source', '-v', 'data:/d', image, 'true');
    assert.equal(
      await ok('run', '--rm', '--volumes-from', 'source:ro', image, 'sh', '-c', 'touch /d/x 2>&1; true'),
      'touch: /d/x: Read-only file system',
    );
    const refused: [string[], RegExp][] = [
      [['--volumes-from', 'source:xx'], /invalid mode: xx/],
      [['--volumes-from', 'source:rshared'], /invalid mode: rshared/],
      [['--volumes-from', 'nosuch'], /No such container: nosuch/],
      [['-v', '/tmp:/m:ro,rw'], /invalid mode: ro,rw/],
      [['-v', 'data:/m:rshared'], /invalid mount config for type "volume": field BindOptions must not be specified/],
      [['-v', '/tmp:/m:nocopy'], /invalid mount config for type "bind": field VolumeOptions must not be specified/],
      [['-v', '/tmp:/'], /invalid specification: destination can't be '\/'/],
      [['--mount', 'type=bind,src=/no/such,dst=/m'], /bind source path does not exist: \/no\/such/],
      // dockerd forgets the volume that it has made by then.
      ...(onDockerd
        ? []
        : [
            [['-v', '/etc/motd'], /cannot mount volume over existing file, file exists \/etc\/motd/] as [
              string[],
              RegExp,
            ],
          ]),
      [['--mount', 'type=volume,dst=/m,readonly'], /must not set ReadOnly mode when using anonymous volumes/],
    ];
    for (const [options, text] of refused) {
      const { status, stderr } = await cli('create', ...options, image, 'true');
      assert.notEqual(status, 0, options.join(' '));
      assert.match(stderr, text);
    }
    await ok('rm', 'source');
    await ok('volume', 'rm', 'data');
  });

  test('filters of the list, and prune by versions', async () => {
    await create({ Name: 'apple', Labels: { colour: 'red' } });
    await create({ Name: 'pear', Labels: { colour: 'green', big: '' } });
    await create({ Name: 'opted', DriverOpts: { type: 'tmpfs', device: 'tmpfs' } });
    await ok('create', '--name', 'user', '-v', 'pear:/p', image, 'true');
    assert.deepEqual(await listed({ name: ['^a', 'ear'] }), ['apple', 'pear']);
    assert.deepEqual(await listed({ label: ['colour'] }), ['apple', 'pear']);
    assert.deepEqual(await listed({ label: ['colour=red'] }), ['apple']);
    assert.deepEqual(await listed({ label: ['colour', 'big'] }), ['pear']);
    assert.deepEqual(await listed({ driver: ['local'] }), ['apple', 'opted', 'pear']);
    assert.deepEqual(await listed({ driver: ['other'] }), []);
    assert.deepEqual(await listed({ dangling: ['true'] }), ['apple', 'opted']);
    assert.deepEqual(await listed({ dangling: ['false'] }), ['pear']);
    for (const filters of [{ dangling: ['maybe'] }, { colour: ['red'] }]) {
      assert.equal(
        (await call(engine.socketPath, 'GET', `/volumes?filters=${encodeURIComponent(JSON.stringify(filters))}`))
          .status,
        400,
      );
    }
    const prune = async (version: string, filters: unknown): Promise<string[] | null> =>
      (
        await callJson<{ VolumesDeleted: string[] | null }>(
          engine.socketPath,
          'POST',
          `${version}/volumes/prune?filters=${encodeURIComponent(JSON.stringify(filters))}`,
        )
      ).VolumesDeleted;
    assert.deepEqual((await prune('/v1.41', { 'label!': ['colour=red'] })) ?? [], []);
    if (!onDockerd) {
      assert.deepEqual((await prune('', {})) ?? [], []);
      await create({ Name: '' });
      assert.equal((await prune('', {}))?.length, 1);
      assert.deepEqual(await prune('', { all: ['true'], label: ['colour'] }), ['apple']);
    } else {
      assert.deepEqual(await prune('/v1.41', { label: ['colour'] }), ['apple']);
    }
    const told = await call(
      engine.socketPath,
      'GET',
      `/events?since=0&until=${Date.now() / 1000}` +
        `&filters=${encodeURIComponent(JSON.stringify({ type: ['volume'], event: ['prune'] }))}`,
    );
    assert.match(told.text.trim().split('\n').at(-1) ?? '', /"Attributes":\{"reclaimed":"\d+"\}/);
    for (const [method, path] of [
      ['PUT', '/volumes/pear?version=1'],
      ['POST', '/volumes/create'],
    ] as const) {
      if (!onDockerd)
        assert.equal(
          (await call(engine.socketPath, method, path, { json: { Name: 'clustered', ClusterVolumeSpec: {} } })).status,
          503,
          path,
        );
    }
    await ok('rm', 'user');
    await ok('volume', 'rm', 'pear', 'opted');
  });

  test('events of a volume name the container and the place', async () => {
    const since = Math.floor(Date.now() / 1000);
    await ok('run', '--rm', '--name', 'announcer', '-v', 'told:/t:ro', image, 'true');
    await ok('volume', 'rm', 'told');
    const text = await ok(
      'events',
      '--since',
      String(since),
      '--until',
      String(Math.floor(Date.now() / 1000) + 1),
      '--filter',
      'volume=told',
      '--format',
      '{{json .}}',
    );
    const events = text
      .split('\n')
      .map((line) => JSON.parse(line) as { Action: string; Actor: { Attributes: Record<string, string> } });
    assert.deepEqual(
      events.map(({ Action }) => Action),
      ['create', 'mount', 'unmount', 'destroy'],
    );
    const { container, ...rest } = events[1]?.Actor.Attributes ?? {};
    assert.match(container ?? '', /^[0-9a-f]{64}$/);
    assert.deepEqual(rest, { destination: '/t', driver: 'local', propagation: '', 'read/write': 'false' });
  });

  test('nothing of the tests is left', async () => {
    assert.deepEqual(await listed(), []);
    assert.equal(existsSync(temp), true);
  });
});
