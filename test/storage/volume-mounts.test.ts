/** Mounts of containers: parts of volumes, images, tmpfs and binds. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
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
const temp = mkdtempSync(join(tmpdir(), 'volume-mounts-'));
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const { ok, cli, listed, inspect } = volumeCalls(() => engine);

async function refusesImageMounts(): Promise<void> {
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
  await refused('mounted:1', 'missing', /cannot access path .*missing: lstat .*missing: no such file or directory/);
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
}

/** Files in the mount of `viewer` can be copied from it and not into it. */
async function archivesOfImageMount(): Promise<void> {
  for (const path of ['/i/dir/file', '/i'])
    assert.equal((await call(engine.socketPath, 'HEAD', `/containers/viewer/archive?path=${path}`)).status, 200, path);
  assert.equal(
    (
      await call(engine.socketPath, 'PUT', '/containers/viewer/archive?path=/i', {
        body: tarOf([{ path: 'new', content: 'x' }]),
      })
    ).status,
    400,
  );
}

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
    for (const [path, first] of [
      ['out', 'out'],
      ['absolute', 'absolute'],
      ['missing', 'missing'],
      ['a/none/of/them', 'a/none'],
      ['a/b/c/d/e', 'a/b/c'],
    ] as const) {
      const { status, stderr } = await cli('run', ...at(path), image, 'ls', '/s');
      assert.notEqual(status, 0, path);
      const reason = `lstat ${Mountpoint}/${first}: no such file or directory`;
      assert.match(stderr, new RegExp(`cannot access path ${Mountpoint}/${path}: ${reason}`));
    }
    const mounts = [{ Type: 'volume', Source: 'parts', Target: '/s', VolumeOptions: { Subpath: 'missing' } }];
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
      json: { Image: image, HostConfig: { Mounts: mounts } },
    });
    assert.equal((await call(engine.socketPath, 'POST', `/containers/${Id}/start`)).status, 404);
    await ok('rm', Id);
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
      await refusesImageMounts();
      await archivesOfImageMount();
      assert.match((await cli('rmi', 'mounted:1')).stderr, /container [0-9a-f]{12} is using its referenced image/);
      await ok('rm', 'viewer');
      await ok('rmi', 'mounted:1');
      assert.doesNotMatch(readFileSync(`/proc/${engine.pid}/mounts`, 'utf8'), /\/places\//);
    },
  );

  test(
    'binds with and without mounts below; a read-only one covers them, unless told not to or by old clients',
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

  test('nothing of the tests is left', async () => {
    assert.deepEqual(await listed(), []);
    assert.equal(existsSync(temp), true);
  });
});
