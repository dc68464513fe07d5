/** Copying in and out of containers, by the docker CLI and the API: forms of paths, links, mounts, refusals. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { docker } from '../support/cli.js';
import { Copies, decodeStat, onDockerd } from '../support/copies.js';
import { describeTree } from '../support/describe-tree.js';
import { call } from '../support/http.js';
import { everyFileType, tarOf, type LayerEntry } from '../support/image-builder.js';

const copies = new Copies();

describe('paths', () => {
  before(() =>
    copies.running(
      'paths',
      'mkdir -p /d/sub; echo a >/d/a; ln -s a /d/l; ln /d/a /d/h; ln -s /d /dl; ln -s /nope/x /dang; ' +
        'ln -s ../../../etc/passwd /esc; ln -s /dl/sub/../l /chain; ln -s loop /loop; ' +
        'touch -d @981173106 /d/a; chmod 4751 /d/a',
    ),
  );
  after(() => copies.ok('rm', '-f', 'paths'));

  test('the stat of a path does not follow a link at its end but tells where it leads', async () => {
    assert.deepEqual(await copies.stat('paths', '/d/a'), {
      name: 'a',
      size: 2,
      mode: 2 ** 23 + 0o751,
      mtime: '2001-02-03T04:05:06Z',
      linkTarget: '',
    });
    assert.equal((await copies.stat('paths', '/etc')).mode, 2147484141);
    assert.equal((await copies.stat('paths', '/tmp')).mode, 2 ** 31 + 2 ** 20 + 0o777);
    const links: [string, string][] = [
      ['/dl', '/d'],
      ['/dang', '/nope/x'],
      ['/esc', '/etc/passwd'],
      ['/d/l', '/d/a'],
      ['/chain', '/d/a'],
    ];
    for (const [path, linkTarget] of links) {
      const found = await copies.stat('paths', path);
      assert.deepEqual([found.mode, found.linkTarget], [2 ** 27 + 0o777, linkTarget], path);
    }
    const names: [string, string][] = [
      ['/dl/', 'dl'],
      ['/dl/.', '.'],
      ['/', '/'],
      ['d', 'd'],
      ['../../d/../d//', 'd'],
    ];
    for (const [path, name] of names) {
      const found = await copies.stat('paths', path);
      assert.deepEqual([found.name, found.mode, found.linkTarget], [name, 2147484141, ''], path);
    }
  });

  test('the tar begins with the last component of the path; with /. it holds the contents', async () => {
    const tar = async (path: string): Promise<string[]> =>
      copies.names((await call(copies.engine.socketPath, 'GET', copies.url('paths', path))).body);
    const of = (prefix: string): string[] => ['', 'a', 'h', 'l', 'sub/'].map((name) => `${prefix}/${name}`);
    assert.deepEqual(await tar('/d'), of('d'));
    assert.deepEqual(await tar('/d/'), of('d'));
    assert.deepEqual(await tar('/dl/'), of('dl'));
    assert.deepEqual(await tar('/dl/.'), of('.'));
    assert.deepEqual(await tar('/dl'), ['dl']);
    assert.deepEqual(await tar('/d/a'), ['a']);
    assert.deepEqual((await tar('/')).slice(0, 1), ['/']);
    assert.ok((await tar('/')).includes('/etc/passwd'));
  });

  test('the tar comes with the stat, and compressed for those who ask', async () => {
    const plain = await call(copies.engine.socketPath, 'GET', copies.url('paths', '/d'));
    assert.equal(plain.headers['content-type'], 'application/x-tar');
    assert.equal(decodeStat(plain.headers['x-docker-container-path-stat']).name, 'd');
    const zipped = await call(copies.engine.socketPath, 'GET', copies.url('paths', '/d'), {
      headers: { 'Accept-Encoding': 'gzip' },
    });
    assert.equal(zipped.headers['content-encoding'], 'gzip');
    assert.deepEqual(execFileSync('gzip', ['-dc'], { input: zipped.body }), plain.body);
  });

  test('what is not there, and what is no path', async () => {
    for (const method of ['GET', 'PUT']) {
      const missing = await call(copies.engine.socketPath, method, copies.url('paths', '/nope/x'));
      assert.deepEqual(
        [missing.status, missing.text],
        [404, '{"message":"Could not find the file /nope/x in container paths"}\n'],
      );
      assert.equal((await call(copies.engine.socketPath, method, '/containers/paths/archive')).status, 400);
      assert.equal(
        (await call(copies.engine.socketPath, method, copies.url('nosuch', '/etc'))).text,
        '{"message":"No such container: nosuch"}\n',
      );
    }
    assert.equal((await call(copies.engine.socketPath, 'HEAD', copies.url('paths', '/nope'))).status, 404);
    assert.ok((await call(copies.engine.socketPath, 'GET', copies.url('paths', '/etc/passwd/'))).status >= 400);
    assert.ok((await call(copies.engine.socketPath, 'PUT', copies.url('paths', '/loop'))).status >= 400);
    assert.match((await copies.put('paths', '/etc/passwd', tarOf([]))).text, /extraction point is not a directory/);
    assert.equal((await copies.put('paths', '/d', Buffer.alloc(0))).status, 200);
    for (const bad of [
      Buffer.from('no tar at all '.repeat(100)),
      tarOf([{ path: 'x', content: 'y'.repeat(2000) }]).subarray(0, 1000),
      tarOf([{ path: '../../up', content: 'x' }]),
    ]) {
      assert.ok((await copies.put('paths', '/d/sub', bad)).status >= 400);
    }
    assert.equal((await copies.cli('exec', 'paths', 'ls', '/up')).status, 1);
  });
});

describe('docker cp', () => {
  before(() =>
    copies.running('cp', 'mkdir -p /have/dir; echo old >/have/file; ln -s /have /link; ln -s /have/file /filelink'),
  );
  after(() => copies.ok('rm', '-f', 'cp'));

  test('files into a container', async () => {
    const dir = copies.scratch('cp-in');
    writeFileSync(join(dir, 'f'), 'new\n');
    utimesSync(join(dir, 'f'), 1_000_000_000, 1_000_000_000);
    const content = (path: string): Promise<string> => copies.ok('exec', 'cp', 'cat', path);
    await copies.ok('cp', join(dir, 'f'), 'cp:/have/dir');
    assert.equal(await content('/have/dir/f'), 'new');
    assert.equal(await copies.ok('exec', 'cp', 'stat', '-c', '%Y', '/have/dir/f'), '1000000000');
    await copies.ok('cp', join(dir, 'f'), 'cp:/have/file');
    assert.equal(await content('/have/file'), 'new');
    await copies.ok('cp', join(dir, 'f'), 'cp:/link/made');
    assert.equal(await content('/have/made'), 'new');
    await copies.ok('cp', join(dir, 'f'), 'cp:/filelink');
    assert.equal(await copies.ok('exec', 'cp', 'readlink', '/filelink'), '/have/file');
    assert.notEqual((await copies.cli('cp', join(dir, 'f'), 'cp:/missing/')).status, 0);
    assert.notEqual((await copies.cli('cp', dir, 'cp:/have/file')).status, 0);
    await docker(copies.engine, ['cp', '-', 'cp:/have/dir'], {
      input: tarOf([{ path: 'piped/deep/file', content: 'from stdin' }]).toString('latin1'),
    });
    assert.equal(await content('/have/dir/piped/deep/file'), 'from stdin');
  });

  test('directories into a container', async () => {
    const dir = copies.scratch('cp-dirs/tree');
    mkdirSync(join(dir, 'sub'));
    writeFileSync(join(dir, 'sub/f'), 'x');
    symlinkSync('sub/f', join(dir, 'l'));
    await copies.ok('cp', dir, 'cp:/copied');
    await copies.ok('cp', dir, 'cp:/have');
    await copies.ok('cp', `${dir}/.`, 'cp:/have/dir');
    for (const at of ['/copied', '/have/tree', '/have/dir'])
      assert.equal(await copies.ok('exec', 'cp', 'cat', `${at}/l`), 'x', at);
  });

  test('out of a container', async () => {
    await copies.ok('exec', 'cp', 'sh', '-c', 'mkdir /out; echo 1 >/out/one; ln -s one /out/l; ln -s /out /outl');
    const dir = copies.scratch('cp-out');
    await copies.ok('cp', 'cp:/out', join(dir, 'a'));
    await copies.ok('cp', 'cp:/out', dir);
    await copies.ok('cp', 'cp:/out/.', copies.scratch('cp-out/c'));
    await copies.ok('cp', '-L', 'cp:/outl', join(dir, 'd'));
    for (const at of ['a', 'out', 'c', 'd'])
      assert.deepEqual(
        [readFileSync(join(dir, at, 'one'), 'utf8'), readlinkSync(join(dir, at, 'l'))],
        ['1\n', 'one'],
        at,
      );
    await copies.ok('cp', 'cp:/outl', join(dir, 'link'));
    assert.equal(readlinkSync(join(dir, 'link')), '/out');
    await copies.ok('cp', 'cp:/out/one', join(dir, 'file'));
    assert.equal(readFileSync(join(dir, 'file'), 'utf8'), '1\n');
    const { stdout, status } = await copies.cli('cp', 'cp:/out/one', '-');
    assert.equal(status, 0);
    assert.match(stdout, /^one\0/);
  });

  // The other engine gives a file the owner that its other name's entry has, and keeps security.capability only.
  test(
    'types of files, owners, modes, times, names and attributes come through in both directions',
    { skip: onDockerd },
    async () => {
      const tar = tarOf([...everyFileType(), { path: 'types/capable', content: 'x', mode: 0o755, uid: 7, gid: 8 }]);
      assert.equal((await copies.put('cp', '/have', tar)).status, 200);
      const back = await call(copies.engine.socketPath, 'GET', copies.url('cp', '/have/types/.'));
      const sent = copies.scratch('types-sent');
      const received = copies.scratch('types-received');
      execFileSync('tar', ['--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', sent], { input: tar });
      execFileSync('tar', ['--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', received], { input: back.body });
      assert.deepEqual(describeTree(received), describeTree(join(sent, 'types')));
    },
  );

  test('with copyUIDGID files belong to the user of the container', async () => {
    await copies.ok(
      'run',
      '-d',
      '--name',
      'user',
      '--user',
      onDockerd ? '1:1' : 'daemon',
      copies.image,
      'sleep',
      '1000',
    );
    const tar = tarOf([{ path: 'f', content: 'x', uid: 1234, gid: 1234 }]);
    const owner = async (more: string): Promise<string> => {
      assert.equal((await copies.put('user', '/tmp', tar, more)).status, 200);
      return copies.ok('exec', 'user', 'stat', '-c', '%u:%g', '/tmp/f');
    };
    assert.equal(await owner(''), '1234:1234');
    if (!onDockerd) assert.equal(await owner('&copyUIDGID=1'), '1:1');
    await copies.ok('rm', '-f', 'user');
  });

  test('noOverwriteDirNonDir keeps directories and files apart', async () => {
    const entries = (type: LayerEntry['type']): Buffer =>
      tarOf([{ path: 'swap', ...(type ? { type } : { content: 'file' }) }]);
    await copies.put('cp', '/have', entries('directory'));
    const refused = await copies.put('cp', '/have', entries(undefined), '&noOverwriteDirNonDir=true');
    assert.match(refused.text, /cannot overwrite directory \\"\/have\/swap\\" with non-directory/);
    assert.equal((await copies.put('cp', '/have', entries(undefined))).status, 200);
    const again = await copies.put('cp', '/have', entries('directory'), '&noOverwriteDirNonDir=1');
    assert.match(again.text, /cannot overwrite non-directory \\"\/have\/swap\\" with directory/);
    assert.equal(await copies.ok('exec', 'cp', 'cat', '/have/swap'), 'file');
  });

  test('compressed archives are unpacked', async () => {
    const tar = tarOf([{ path: 'packed', content: 'inside' }]);
    for (const program of ['gzip', 'bzip2', 'xz', ...(onDockerd ? [] : ['zstd'])]) {
      const reply = await copies.put('cp', '/tmp', execFileSync(program, ['-c'], { input: tar }));
      assert.equal(reply.status, 200, `${program}: ${reply.text}`);
      assert.equal(await copies.ok('exec', 'cp', 'sh', '-c', 'cat /tmp/packed; rm /tmp/packed'), 'inside', program);
    }
  });
});

describe('mounts', () => {
  test('volumes, binds and tmpfs are seen as the container sees them, in every state', async () => {
    const dir = copies.scratch('bind');
    writeFileSync(join(dir, 'of-host'), 'host');
    await copies.ok('volume', 'create', 'vol');
    await copies.running(
      'mounts',
      'echo v >/vol/v; echo t >/tf/t; mkdir -p /tf/x; ln -s /vol/v /tf/l',
      '-v',
      'vol:/vol',
      '-v',
      `${dir}:/bind:ro`,
      '--tmpfs',
      '/tf',
    );
    const read = async (path: string): Promise<number> =>
      (await call(copies.engine.socketPath, 'HEAD', copies.url('mounts', path))).status;
    const check = async (state: string): Promise<void> => {
      assert.deepEqual(
        [await read('/vol/v'), await read('/bind/of-host'), await read('/etc/hosts')],
        [200, 200, 200],
        state,
      );
      assert.equal((await copies.put('mounts', '/vol', tarOf([{ path: state, content: state }]))).status, 200);
      assert.match((await copies.put('mounts', '/bind', tarOf([]))).text, /mounted volume is marked read-only/);
      assert.ok(
        (await copies.put('mounts', '/', tarOf([{ path: 'bind/x', content: 'x' }]))).status >= 400,
        'through the directory above',
      );
      assert.deepEqual(readdirSync(dir), ['of-host']);
    };
    await check('running');
    if (!onDockerd) {
      assert.deepEqual([await read('/tf/t'), (await copies.stat('mounts', '/tf/l')).linkTarget], [200, '/vol/v']);
      assert.equal((await copies.put('mounts', '/tf', tarOf([{ path: 'in', content: 'tmpfs' }]))).status, 200);
      assert.equal(await copies.ok('exec', 'mounts', 'cat', '/tf/in'), 'tmpfs');
    }
    await copies.ok('pause', 'mounts');
    await check('paused');
    await copies.ok('unpause', 'mounts');
    assert.equal(await copies.ok('exec', 'mounts', 'ls', '/vol'), 'paused\nrunning\nv');
    await copies.ok('kill', 'mounts');
    await check('stopped');
    assert.equal(await read('/tf/t'), 404);
    await copies.ok('rm', 'mounts');
    await copies.ok('create', '--name', 'fresh', '-v', 'vol:/new/place', copies.image, 'true');
    assert.equal((await copies.stat('fresh', '/new/place/stopped')).size, 7);
    await copies.ok('rm', 'fresh');
    await copies.ok('volume', 'rm', 'vol');
  });

  test('a mount point is neither replaced nor emptied', async () => {
    await copies.ok('volume', 'create', 'kept');
    await copies.running('points', 'echo k >/m/kept/file', '-v', 'kept:/m/kept');
    const hosts = await copies.ok('exec', 'points', 'cat', '/etc/hosts');
    assert.match(
      (await copies.put('points', '/etc', tarOf([{ path: 'hosts', content: 'mine' }]))).text,
      /device or resource busy/,
    );
    if (!onDockerd) {
      assert.match(
        (await copies.put('points', '/', tarOf([{ path: 'm', content: 'file' }]))).text,
        /device or resource busy/,
      );
      assert.equal(await copies.ok('exec', 'points', 'cat', '/m/kept/file'), 'k');
    }
    assert.equal(await copies.ok('exec', 'points', 'cat', '/etc/hosts'), hosts);
    await copies.ok('rm', '-f', 'points');
    await copies.ok('volume', 'rm', 'kept');
  });

  test('a read-only root takes nothing, its volumes do', async () => {
    await copies.ok('create', '--name', 'ro', '--read-only', '-v', '/vol', copies.image, 'sleep', '1000');
    for (const start of [false, true]) {
      if (start) await copies.ok('start', 'ro');
      assert.match((await copies.put('ro', '/tmp', tarOf([]))).text, /container rootfs is marked read-only/);
      assert.equal((await copies.put('ro', '/vol', tarOf([{ path: 'f', content: 'x' }]))).status, 200);
    }
    await copies.ok('rm', '-fv', 'ro');
  });
});
