/** Volumes as clients use them: options of the local driver, what fills them, who keeps them, filters, events. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk, type CliResult } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, type Reply } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';

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

interface VolumeJson {
  readonly Name: string;
  readonly Mountpoint: string;
  readonly Labels: Record<string, string> | null;
  readonly Options: Record<string, string> | null;
}

const ok = (...args: string[]): Promise<string> => dockerOk(engine, args);
const cli = (...args: string[]): Promise<CliResult> => docker(engine, args);
const create = (json: unknown): Promise<Reply> => call(engine.socketPath, 'POST', '/volumes/create', { json });
const listed = async (filters?: unknown, version = ''): Promise<string[]> => {
  const query = filters === undefined ? '' : `?filters=${encodeURIComponent(JSON.stringify(filters))}`;
  const { Volumes } = await callJson<{ Volumes: VolumeJson[] }>(engine.socketPath, 'GET', `${version}/volumes${query}`);
  return Volumes.map(({ Name }) => Name).toSorted();
};
const inspect = (name: string): Promise<VolumeJson> => callJson(engine.socketPath, 'GET', `/volumes/${name}`);
const isMounted = (path: string): boolean => readFileSync(`/proc/${engine.pid}/mounts`, 'utf8').includes(` ${path} `);

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
      /error while mounting volume '.*\/broken\/_data': failed to mount local volume: mount \/no\/such\/dir:.*, flags: 0x1000: no such file or directory/,
    );
    assert.equal(await ok('ps', '-aq'), '');
    await ok('volume', 'rm', 'broken');
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
});

describe('mounts', () => {
  test('a subpath of a volume; links in it do not lead out', { skip: onDockerd }, async () => {
    await ok(
      'run',
      '--rm',
      '-v',
      'parts:/p',
      image,
      'sh',
      '-c',
      'mkdir -p /p/a/b; echo deep >/p/a/b/f; ln -s /a /p/link; ln -s ../../../../../../../../etc /p/out',
    );
    const at = (subpath: string): string[] => [
      '--rm',
      '--mount',
      `type=volume,src=parts,dst=/s,volume-subpath=${subpath}`,
    ];
    assert.equal(await ok('run', ...at('a/b'), image, 'cat', '/s/f'), 'deep');
    assert.equal(await ok('run', ...at('link/b'), image, 'cat', '/s/f'), 'deep');
    const { Mountpoint } = await inspect('parts');
    symlinkSync(temp, join(Mountpoint, 'absolute'));
    for (const path of ['out', 'absolute', 'missing']) {
      const { status, stderr } = await cli('run', ...at(path), image, 'ls', '/s');
      assert.notEqual(status, 0, path);
      assert.match(stderr, new RegExp(`cannot access path ${Mountpoint}/${path}: no such file or directory`));
    }
    for (const path of ['../up', '/abs'])
      assert.match(
        (await cli('run', ...at(path), image, 'true')).stderr,
        /subpath must be a relative path within the volume/,
      );
    const old = await call(engine.socketPath, 'POST', '/v1.44/containers/create', {
      json: {
        Image: image,
        HostConfig: { Mounts: [{ Type: 'volume', Source: 'parts', Target: '/s', VolumeOptions: { Subpath: 'a' } }] },
      },
    });
    assert.match(old.text, /VolumeOptions.Subpath needs API v1.45 or newer/);
    await ok('create', '--name', 'sub', '--mount', 'type=volume,src=parts,dst=/s,volume-subpath=link', image, 'true');
    assert.equal((await call(engine.socketPath, 'HEAD', '/containers/sub/archive?path=/s/b/f')).status, 200);
    await ok('rm', 'sub');
    await ok('volume', 'rm', 'parts');
  });

  test('an empty subpath of a volume takes what the image has in its place, unless it is not to', async () => {
    await ok('run', '--rm', '-v', 'parts:/p', image, 'sh', '-c', 'mkdir -p /p/a /p/b /p/c; touch /p/c/own');
    const seen = (subpath: string, ...more: string[]): Promise<string> => {
      const mount = ['type=volume', 'src=parts', 'dst=/etc', `volume-subpath=${subpath}`, ...more].join(',');
      return ok('run', '--rm', '--network', 'none', '--mount', mount, image, 'ls', '/etc');
    };
    assert.match(await seen('a'), /^motd$/m);
    assert.doesNotMatch(await seen('b', 'volume-nocopy'), /motd/);
    assert.doesNotMatch(await seen('c'), /motd/);
    assert.match(await ok('run', '--rm', '-v', 'parts:/p', image, 'ls', '/p/a'), /^motd$/m);
    await ok('volume', 'rm', 'parts');
  });

  test('tmpfs options, and volumes with labels and options of their own', async () => {
    const seen = await ok(
      'run',
      '--rm',
      '--mount',
      'type=tmpfs,dst=/m,tmpfs-size=1m,tmpfs-mode=700',
      image,
      'sh',
      '-c',
      'grep " /m " /proc/self/mounts; stat -c %a /m',
    );
    assert.match(seen, /tmpfs \/m tmpfs rw,nosuid,nodev,noexec.*size=1024k,mode=700.*\n700$/);
    const id = await ok(
      'create',
      '--mount',
      'type=volume,src=dressed,dst=/m,volume-label=a=b,volume-opt=type=tmpfs,volume-opt=device=tmpfs',
      image,
      'true',
    );
    const { Labels, Options } = await inspect('dressed');
    assert.deepEqual([Labels, Options], [{ a: 'b' }, { type: 'tmpfs', device: 'tmpfs' }]);
    await ok('rm', id);
    await ok('volume', 'rm', 'dressed');
  });

  test(
    'an image: its files without a way to write, whole or from a path; kept while a container has it',
    { skip: onDockerd },
    async () => {
      const imported = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=mounted&tag=1', {
        body: tarOf([
          { path: 'dir/', type: 'directory' },
          { path: 'dir/file', content: 'of the image' },
        ]),
      });
      assert.equal(imported.status, 200, imported.text);
      const seen = await ok(
        'run',
        '--name',
        'viewer',
        '--privileged',
        '--mount',
        'type=image,src=mounted:1,dst=/i',
        image,
        'sh',
        '-c',
        'cat /i/dir/file; mount -o remount,rw /i; touch /i/x; echo " $?"',
      );
      assert.equal(seen, 'of the image 1');
      const [mount] = JSON.parse(await ok('inspect', '-f', '{{json .Mounts}}', 'viewer')) as Record<string, unknown>[];
      assert.deepEqual(mount, {
        Type: 'image',
        Name: 'mounted:1',
        Source: await ok('inspect', '-f', '{{.Id}}', 'mounted:1'),
        Destination: '/i',
        Mode: '',
        RW: false,
        Propagation: 'rprivate',
      });
      const taken = await ok(
        'run',
        '--rm',
        '--volumes-from',
        'viewer',
        '--mount',
        `type=image,src=${image},dst=/b,image-subpath=bin`,
        image,
        'sh',
        '-c',
        'ls /i/dir/file /b/sh',
      );
      assert.equal(taken, '/b/sh\n/i/dir/file');
      // All that walks a tree works from its root, in an image of one layer and of several.
      const walk = 'cd /i && echo *; find . | sort; mkdir /copy && cp -r . /copy && ls /copy /b';
      const walked = await ok(
        'run',
        '--rm',
        '--mount',
        'type=image,src=mounted:1,dst=/i',
        '--mount',
        `type=image,src=${image},dst=/b`,
        image,
        'sh',
        '-c',
        walk,
      );
      assert.match(
        walked,
        /^dir\n\.\n\.\/dir\n\.\/dir\/file\n\/b:\n(?:\w+\n)*bin\n(?:\w+\n)*etc\n(?:\w+\n)*\n\/copy:\ndir$/,
      );
      const refused = async (source: string, subpath: string, text: RegExp): Promise<void> => {
        const { status, stderr } = await cli(
          'run',
          '--rm',
          '--mount',
          `type=image,src=${source},dst=/i,image-subpath=${subpath}`,
          image,
          'true',
        );
        assert.notEqual(status, 0);
        assert.match(stderr, text);
      };
      await refused('mounted:1', 'missing', /cannot access path .*missing: no such file or directory/);
      await refused('mounted:1', '../up', /subpath must be a relative path/);
      const missing = await call(engine.socketPath, 'POST', '/containers/create', {
        json: { Image: image, HostConfig: { Mounts: [{ Type: 'image', Source: 'no-such:1', Target: '/i' }] } },
      });
      assert.equal(missing.status, 404);
      assert.match(missing.text, /No such image: no-such:1/);
      const old = await call(engine.socketPath, 'POST', '/v1.47/containers/create', {
        json: { Image: image, HostConfig: { Mounts: [{ Type: 'image', Source: image, Target: '/i' }] } },
      });
      assert.deepEqual([old.status, /Mount type .+ needs API v1.48 or newer/.test(old.text)], [400, true]);
      for (const path of ['/i/dir/file', '/i'])
        assert.equal(
          (await call(engine.socketPath, 'HEAD', `/containers/viewer/archive?path=${path}`)).status,
          200,
          path,
        );
      assert.equal(
        (
          await call(engine.socketPath, 'PUT', '/containers/viewer/archive?path=/i', {
            body: tarOf([{ path: 'new', content: 'x' }]),
          })
        ).status,
        400,
      );
      assert.match((await cli('rmi', 'mounted:1')).stderr, /container [0-9a-f]{12} is using its referenced image/);
      await ok('rm', 'viewer');
      await ok('rmi', 'mounted:1');
      assert.doesNotMatch(readFileSync(`/proc/${engine.pid}/mounts`, 'utf8'), /\/places\//);
    },
  );

  test(
    'binds with and without what is mounted below; a read-only one covers that, unless asked otherwise or by an old client',
    { skip: onDockerd },
    async () => {
      const below = join(temp, 'outer', 'inner');
      mkdirSync(below, { recursive: true });
      execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', below]);
      try {
        writeFileSync(join(below, 'there'), '');
        const writes = async (bind: object, version = ''): Promise<string> => {
          const HostConfig = { Mounts: [{ Type: 'bind', Source: join(temp, 'outer'), Target: '/o', ...bind }] };
          const json = {
            Image: image,
            Cmd: [
              'sh',
              '-c',
              'ls /o/inner; touch /o/new; echo $?; touch /o/inner/new; echo $?; rm -f /o/new /o/inner/new',
            ],
            HostConfig,
          };
          const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', `${version}/containers/create`, {
            json,
          });
          const output = await ok('start', '-a', Id);
          await ok('rm', Id);
          return output.replaceAll('\n', ' ');
        };
        assert.equal(await writes({}), 'there 0 0');
        assert.equal(await writes({ BindOptions: { NonRecursive: true } }), '0 0');
        assert.equal(await writes({ ReadOnly: true }), 'there 1 1');
        assert.equal(await writes({ ReadOnly: true, BindOptions: { ReadOnlyForceRecursive: true } }), 'there 1 1');
        assert.equal(await writes({ ReadOnly: true, BindOptions: { ReadOnlyNonRecursive: true } }), 'there 1 0');
        assert.equal(await writes({ ReadOnly: true }, '/v1.43'), 'there 1 0');
      } finally {
        execFileSync('umount', [below]);
      }
      const made = join(temp, 'made', 'by', 'engine');
      assert.match(
        (await cli('create', '--mount', `type=bind,src=${made},dst=/m`, image)).stderr,
        /bind source path does not exist/,
      );
      assert.equal(existsSync(made), false);
      // Directories that Binds names exist for each start, and no others are made.
      await ok('create', '--name', 'again', '-v', `${made}:/m`, image, 'touch', '/m/x');
      assert.equal(existsSync(made), false);
      for (let start = 0; start < 2; start++) {
        await ok('start', '-a', 'again');
        assert.equal(existsSync(join(made, 'x')), true);
        rmSync(join(temp, 'made'), { recursive: true });
      }
      await ok('rm', 'again');
    },
  );

  test(
    'a subpath and options of tmpfs are taken over with the mounts of another container',
    { skip: onDockerd },
    async () => {
      await ok('run', '--rm', '-v', 'parts:/p', image, 'sh', '-c', 'mkdir /p/a; echo part >/p/a/f');
      const Mounts = [
        { Type: 'volume', Source: 'parts', Target: '/s', VolumeOptions: { Subpath: 'a' } },
        { Type: 'tmpfs', Target: '/t', TmpfsOptions: { SizeBytes: 1 << 20, Options: [['exec']] } },
      ];
      assert.equal(
        (
          await call(engine.socketPath, 'POST', '/containers/create?name=donor', {
            json: { Image: image, HostConfig: { Mounts } },
          })
        ).status,
        201,
      );
      const seen = await ok(
        'run',
        '--rm',
        '--volumes-from',
        'donor',
        image,
        'sh',
        '-c',
        'cat /s/f; grep " /t " /proc/self/mounts',
      );
      assert.match(seen, /^part\ntmpfs \/t tmpfs rw,nosuid,nodev,relatime,size=1024k/);
      await ok('rm', 'donor');
      await ok('volume', 'rm', 'parts');
    },
  );

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
