/** Copying in and out of containers, by the docker CLI and the API: forms of paths, links, mounts, refusals, races. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, symlinkSync, truncateSync, utimesSync, writeFileSync } from 'node:fs';
import { request, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { Cleanup } from './support/cleanup.js';
import { docker, dockerOk, type CliResult } from './support/cli.js';
import { describeTree } from './support/describe-tree.js';
import type { Engine } from './support/engine.js';
import { startEngineWithImage } from './support/engine-with-image.js';
import { call, open, type Reply } from './support/http.js';
import { everyFileType, tarOf, type LayerEntry } from './support/image-builder.js';
import { waitFor } from './support/wait.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
const temp = mkdtempSync(join(tmpdir(), 'archive-test-'));
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => dockerOk(engine, args);
const cli = (...args: string[]): Promise<CliResult> => docker(engine, args);
const url = (container: string, path: string, more = ''): string => `/containers/${container}/archive?path=${encodeURIComponent(path)}${more}`;
const put = (container: string, path: string, body: Buffer, more = ''): Promise<Reply> => call(engine.socketPath, 'PUT', url(container, path, more), { body, headers: { 'Content-Type': 'application/x-tar' } });

interface Stat {
  readonly name: string;
  readonly size: number;
  readonly mode: number;
  readonly mtime: string;
  readonly linkTarget: string;
}

const decode = (header: unknown): Stat => JSON.parse(Buffer.from(String(header), 'base64').toString()) as Stat;

async function stat(container: string, path: string): Promise<Stat> {
  const reply = await call(engine.socketPath, 'HEAD', url(container, path));
  assert.equal(reply.status, 200, `${path}: ${reply.status}`);
  return decode(reply.headers['x-docker-container-path-stat']);
}

/** Names of a tar, and with them where links lead. */
function names(tar: Buffer): string[] {
  const file = join(temp, 'listed.tar');
  writeFileSync(file, tar);
  return execFileSync('tar', ['-tPf', file], { encoding: 'utf8' }).split('\n').filter(Boolean);
}

function scratch(name: string): string {
  const dir = join(temp, name);
  mkdirSync(dir, { recursive: true });
  return dir;
}

async function running(name: string, script: string, ...options: string[]): Promise<void> {
  await ok('run', '-d', '--name', name, ...options, image, 'sh', '-c', `${script}; touch /ready; exec sleep 1000`);
  await waitFor(`${name} to be ready`, async () => (await cli('exec', name, 'test', '-e', '/ready')).status === 0);
}

describe('paths', () => {
  before(() =>
    running('paths', 'mkdir -p /d/sub; echo a >/d/a; ln -s a /d/l; ln /d/a /d/h; ln -s /d /dl; ln -s /nope/x /dang; ln -s ../../../etc/passwd /esc; ln -s /dl/sub/../l /chain; ln -s loop /loop; touch -d @981173106 /d/a; chmod 4751 /d/a'),
  );
  after(() => ok('rm', '-f', 'paths'));

  test('the stat of a path does not follow a link at its end but tells where it leads', async () => {
    assert.deepEqual(await stat('paths', '/d/a'), { name: 'a', size: 2, mode: 2 ** 23 + 0o751, mtime: '2001-02-03T04:05:06Z', linkTarget: '' });
    assert.equal((await stat('paths', '/etc')).mode, 2147484141);
    assert.equal((await stat('paths', '/tmp')).mode, 2 ** 31 + 2 ** 20 + 0o777);
    const links: [string, string][] = [['/dl', '/d'], ['/dang', '/nope/x'], ['/esc', '/etc/passwd'], ['/d/l', '/d/a'], ['/chain', '/d/a']];
    for (const [path, linkTarget] of links) {
      const found = await stat('paths', path);
      assert.deepEqual([found.mode, found.linkTarget], [2 ** 27 + 0o777, linkTarget], path);
    }
    const names: [string, string][] = [['/dl/', 'dl'], ['/dl/.', '.'], ['/', '/'], ['d', 'd'], ['../../d/../d//', 'd']];
    for (const [path, name] of names) {
      const found = await stat('paths', path);
      assert.deepEqual([found.name, found.mode, found.linkTarget], [name, 2147484141, ''], path);
    }
  });

  test('the tar begins with the last component of the path; with /. it holds the contents', async () => {
    const tar = async (path: string): Promise<string[]> => names((await call(engine.socketPath, 'GET', url('paths', path))).body);
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
    const plain = await call(engine.socketPath, 'GET', url('paths', '/d'));
    assert.equal(plain.headers['content-type'], 'application/x-tar');
    assert.equal(decode(plain.headers['x-docker-container-path-stat']).name, 'd');
    const zipped = await call(engine.socketPath, 'GET', url('paths', '/d'), { headers: { 'Accept-Encoding': 'gzip' } });
    assert.equal(zipped.headers['content-encoding'], 'gzip');
    assert.deepEqual(execFileSync('gzip', ['-dc'], { input: zipped.body }), plain.body);
  });

  test('what is not there, and what is no path', async () => {
    for (const method of ['GET', 'PUT']) {
      const missing = await call(engine.socketPath, method, url('paths', '/nope/x'));
      assert.deepEqual([missing.status, missing.text], [404, '{"message":"Could not find the file /nope/x in container paths"}\n']);
      assert.equal((await call(engine.socketPath, method, '/containers/paths/archive')).status, 400);
      assert.equal((await call(engine.socketPath, method, url('nosuch', '/etc'))).text, '{"message":"No such container: nosuch"}\n');
    }
    assert.equal((await call(engine.socketPath, 'HEAD', url('paths', '/nope'))).status, 404);
    assert.ok((await call(engine.socketPath, 'GET', url('paths', '/etc/passwd/'))).status >= 400);
    assert.ok((await call(engine.socketPath, 'PUT', url('paths', '/loop'))).status >= 400);
    assert.match((await put('paths', '/etc/passwd', tarOf([]))).text, /extraction point is not a directory/);
    assert.equal((await put('paths', '/d', Buffer.alloc(0))).status, 200);
    for (const bad of [Buffer.from('no tar at all '.repeat(100)), tarOf([{ path: 'x', content: 'y'.repeat(2000) }]).subarray(0, 1000), tarOf([{ path: '../../up', content: 'x' }])]) {
      assert.ok((await put('paths', '/d/sub', bad)).status >= 400);
    }
    assert.equal((await cli('exec', 'paths', 'ls', '/up')).status, 1);
  });
});

describe('docker cp', () => {
  before(() => running('cp', 'mkdir -p /have/dir; echo old >/have/file; ln -s /have /link; ln -s /have/file /filelink'));
  after(() => ok('rm', '-f', 'cp'));

  test('files into a container', async () => {
    const dir = scratch('cp-in');
    writeFileSync(join(dir, 'f'), 'new\n');
    utimesSync(join(dir, 'f'), 1_000_000_000, 1_000_000_000);
    const content = (path: string): Promise<string> => ok('exec', 'cp', 'cat', path);
    await ok('cp', join(dir, 'f'), 'cp:/have/dir');
    assert.equal(await content('/have/dir/f'), 'new');
    assert.equal(await ok('exec', 'cp', 'stat', '-c', '%Y', '/have/dir/f'), '1000000000');
    await ok('cp', join(dir, 'f'), 'cp:/have/file');
    assert.equal(await content('/have/file'), 'new');
    await ok('cp', join(dir, 'f'), 'cp:/link/made');
    assert.equal(await content('/have/made'), 'new');
    await ok('cp', join(dir, 'f'), 'cp:/filelink');
    assert.equal(await ok('exec', 'cp', 'readlink', '/filelink'), '/have/file');
    assert.notEqual((await cli('cp', join(dir, 'f'), 'cp:/missing/')).status, 0);
    assert.notEqual((await cli('cp', dir, 'cp:/have/file')).status, 0);
    await docker(engine, ['cp', '-', 'cp:/have/dir'], { input: tarOf([{ path: 'piped/deep/file', content: 'from stdin' }]).toString('latin1') });
    assert.equal(await content('/have/dir/piped/deep/file'), 'from stdin');
  });

  test('directories into a container', async () => {
    const dir = scratch('cp-dirs/tree');
    mkdirSync(join(dir, 'sub'));
    writeFileSync(join(dir, 'sub/f'), 'x');
    symlinkSync('sub/f', join(dir, 'l'));
    await ok('cp', dir, 'cp:/copied');
    await ok('cp', dir, 'cp:/have');
    await ok('cp', `${dir}/.`, 'cp:/have/dir');
    for (const at of ['/copied', '/have/tree', '/have/dir']) assert.equal(await ok('exec', 'cp', 'cat', `${at}/l`), 'x', at);
  });

  test('out of a container', async () => {
    await ok('exec', 'cp', 'sh', '-c', 'mkdir /out; echo 1 >/out/one; ln -s one /out/l; ln -s /out /outl');
    const dir = scratch('cp-out');
    await ok('cp', 'cp:/out', join(dir, 'a'));
    await ok('cp', 'cp:/out', dir);
    await ok('cp', 'cp:/out/.', scratch('cp-out/c'));
    await ok('cp', '-L', 'cp:/outl', join(dir, 'd'));
    for (const at of ['a', 'out', 'c', 'd']) assert.deepEqual([readFileSync(join(dir, at, 'one'), 'utf8'), readlinkSync(join(dir, at, 'l'))], ['1\n', 'one'], at);
    await ok('cp', 'cp:/outl', join(dir, 'link'));
    assert.equal(readlinkSync(join(dir, 'link')), '/out');
    await ok('cp', 'cp:/out/one', join(dir, 'file'));
    assert.equal(readFileSync(join(dir, 'file'), 'utf8'), '1\n');
    const { stdout, status } = await cli('cp', 'cp:/out/one', '-');
    assert.equal(status, 0);
    assert.match(stdout, /^one\0/);
  });

  // The other engine gives a file the owner that its other name's entry has, and keeps security.capability only.
  test('types of files, owners, modes, times, names and attributes come through in both directions', { skip: onDockerd }, async () => {
    const tar = tarOf([...everyFileType(), { path: 'types/capable', content: 'x', mode: 0o755, uid: 7, gid: 8 }]);
    assert.equal((await put('cp', '/have', tar)).status, 200);
    const back = await call(engine.socketPath, 'GET', url('cp', '/have/types/.'));
    const sent = scratch('types-sent');
    const received = scratch('types-received');
    execFileSync('tar', ['--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', sent], { input: tar });
    execFileSync('tar', ['--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', received], { input: back.body });
    assert.deepEqual(describeTree(received), describeTree(join(sent, 'types')));
  });

  test('with copyUIDGID files belong to the user of the container', async () => {
    await ok('run', '-d', '--name', 'user', '--user', onDockerd ? '1:1' : 'daemon', image, 'sleep', '1000');
    const tar = tarOf([{ path: 'f', content: 'x', uid: 1234, gid: 1234 }]);
    const owner = async (more: string): Promise<string> => {
      assert.equal((await put('user', '/tmp', tar, more)).status, 200);
      return ok('exec', 'user', 'stat', '-c', '%u:%g', '/tmp/f');
    };
    assert.equal(await owner(''), '1234:1234');
    if (!onDockerd) assert.equal(await owner('&copyUIDGID=1'), '1:1');
    await ok('rm', '-f', 'user');
  });

  test('noOverwriteDirNonDir keeps directories and files apart', async () => {
    const entries = (type: LayerEntry['type']): Buffer => tarOf([{ path: 'swap', ...(type ? { type } : { content: 'file' }) }]);
    await put('cp', '/have', entries('directory'));
    const refused = await put('cp', '/have', entries(undefined), '&noOverwriteDirNonDir=true');
    assert.match(refused.text, /cannot overwrite directory \\"\/have\/swap\\" with non-directory/);
    assert.equal((await put('cp', '/have', entries(undefined))).status, 200);
    const again = await put('cp', '/have', entries('directory'), '&noOverwriteDirNonDir=1');
    assert.match(again.text, /cannot overwrite non-directory \\"\/have\/swap\\" with directory/);
    assert.equal(await ok('exec', 'cp', 'cat', '/have/swap'), 'file');
  });

  test('compressed archives are unpacked', async () => {
    const tar = tarOf([{ path: 'packed', content: 'inside' }]);
    for (const program of ['gzip', 'bzip2', 'xz', ...(onDockerd ? [] : ['zstd'])]) {
      const reply = await put('cp', '/tmp', execFileSync(program, ['-c'], { input: tar }));
      assert.equal(reply.status, 200, `${program}: ${reply.text}`);
      assert.equal(await ok('exec', 'cp', 'sh', '-c', 'cat /tmp/packed; rm /tmp/packed'), 'inside', program);
    }
  });
});

describe('mounts', () => {
  test('volumes, binds and tmpfs are seen as the container sees them, in every state', async () => {
    const dir = scratch('bind');
    writeFileSync(join(dir, 'of-host'), 'host');
    await ok('volume', 'create', 'vol');
    await running('mounts', 'echo v >/vol/v; echo t >/tf/t; mkdir -p /tf/x; ln -s /vol/v /tf/l', '-v', 'vol:/vol', '-v', `${dir}:/bind:ro`, '--tmpfs', '/tf');
    const read = async (path: string): Promise<number> => (await call(engine.socketPath, 'HEAD', url('mounts', path))).status;
    const check = async (state: string): Promise<void> => {
      assert.deepEqual([await read('/vol/v'), await read('/bind/of-host'), await read('/etc/hosts')], [200, 200, 200], state);
      assert.equal((await put('mounts', '/vol', tarOf([{ path: state, content: state }]))).status, 200);
      assert.match((await put('mounts', '/bind', tarOf([]))).text, /mounted volume is marked read-only/);
      assert.ok((await put('mounts', '/', tarOf([{ path: 'bind/x', content: 'x' }]))).status >= 400, 'through the directory above');
      assert.deepEqual(readdirSync(dir), ['of-host']);
    };
    await check('running');
    if (!onDockerd) {
      assert.deepEqual([await read('/tf/t'), (await stat('mounts', '/tf/l')).linkTarget], [200, '/vol/v']);
      assert.equal((await put('mounts', '/tf', tarOf([{ path: 'in', content: 'tmpfs' }]))).status, 200);
      assert.equal(await ok('exec', 'mounts', 'cat', '/tf/in'), 'tmpfs');
    }
    await ok('pause', 'mounts');
    await check('paused');
    await ok('unpause', 'mounts');
    assert.equal(await ok('exec', 'mounts', 'ls', '/vol'), 'paused\nrunning\nv');
    await ok('kill', 'mounts');
    await check('stopped');
    assert.equal(await read('/tf/t'), 404);
    await ok('rm', 'mounts');
    await ok('create', '--name', 'fresh', '-v', 'vol:/new/place', image, 'true');
    assert.equal((await stat('fresh', '/new/place/stopped')).size, 7);
    await ok('rm', 'fresh');
    await ok('volume', 'rm', 'vol');
  });

  test('a mount point is neither replaced nor emptied', async () => {
    await ok('volume', 'create', 'kept');
    await running('points', 'echo k >/m/kept/file', '-v', 'kept:/m/kept');
    const hosts = await ok('exec', 'points', 'cat', '/etc/hosts');
    assert.match((await put('points', '/etc', tarOf([{ path: 'hosts', content: 'mine' }]))).text, /device or resource busy/);
    if (!onDockerd) {
      assert.match((await put('points', '/', tarOf([{ path: 'm', content: 'file' }]))).text, /device or resource busy/);
      assert.equal(await ok('exec', 'points', 'cat', '/m/kept/file'), 'k');
    }
    assert.equal(await ok('exec', 'points', 'cat', '/etc/hosts'), hosts);
    await ok('rm', '-f', 'points');
    await ok('volume', 'rm', 'kept');
  });

  test('a read-only root takes nothing, its volumes do', async () => {
    await ok('create', '--name', 'ro', '--read-only', '-v', '/vol', image, 'sleep', '1000');
    for (const start of [false, true]) {
      if (start) await ok('start', 'ro');
      assert.match((await put('ro', '/tmp', tarOf([]))).text, /container rootfs is marked read-only/);
      assert.equal((await put('ro', '/vol', tarOf([{ path: 'f', content: 'x' }]))).status, 200);
    }
    await ok('rm', '-fv', 'ro');
  });
});

describe('large files', () => {
  test('a sparse file of 5 GB goes in with its holes, in constant memory', { skip: onDockerd }, async () => {
    await ok('run', '-d', '--name', 'big', image, 'sleep', '1000');
    const dir = scratch('big');
    const file = join(dir, 'sparse');
    writeFileSync(file, 'begin');
    truncateSync(file, 5 * 2 ** 30);
    const before = residentKib();
    // GNU tar would make a sparse entry only when asked to.
    const tar = spawn('tar', ['-C', dir, '-cf', '-', 'sparse'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const outgoing = request({ socketPath: engine.socketPath, method: 'PUT', path: url('big', '/tmp'), agent: false });
    tar.stdout.pipe(outgoing);
    const [reply] = (await once(outgoing, 'response')) as [{ statusCode: number; resume(): void }];
    reply.resume();
    assert.equal(reply.statusCode, 200);
    const [size, blocks] = (await ok('exec', 'big', 'stat', '-c', '%s %b', '/tmp/sparse')).split(' ').map(Number);
    assert.equal(size, 5 * 2 ** 30);
    assert.ok((blocks ?? 0) < 2048, `${blocks} blocks`);
    assert.ok(residentKib() - before < 300_000, 'memory');
    await ok('rm', '-f', 'big');
  });

  test('every byte goes in, plain or compressed and in pieces of any size, and comes out to a reader that stalls', async () => {
    const content = randomBytes(20_000_000);
    const tar = tarOf([{ path: 'plain', content }]);
    await running('whole', 'true');
    assert.equal((await put('whole', '/', tar)).status, 200);
    assert.equal((await put('whole', '/', gzipSync(tarOf([{ path: 'packed', content }]), { level: 1 }))).status, 200);
    const outgoing = request({ socketPath: engine.socketPath, method: 'PUT', path: url('whole', '/tmp'), agent: false });
    for (let at = 0; at < tar.length; at += 777_777) outgoing.write(tar.subarray(at, at + 777_777));
    outgoing.end();
    const [reply] = (await once(outgoing, 'response')) as [IncomingMessage];
    reply.resume();
    assert.equal(reply.statusCode, 200);
    const digest = createHash('sha256').update(content).digest('hex');
    const sums = await ok('exec', 'whole', 'sha256sum', '/plain', '/packed', '/tmp/plain');
    assert.deepEqual(sums.trim().split('\n').map((line) => line.split(' ')[0]), [digest, digest, digest]);

    const { message } = await open(engine.socketPath, 'GET', url('whole', '/plain'));
    await sleep(200);
    const pieces: Buffer[] = [];
    for await (const piece of message) pieces.push(piece as Buffer);
    assert.ok(Buffer.concat(pieces).subarray(512, 512 + content.length).equals(content));
    await ok('rm', '-f', 'whole');
  });

  test('a client that leaves in the middle of either direction leaves nothing behind', async () => {
    await running('leaver', 'head -c 50000000 /dev/zero >/big');
    const openFiles = (): number => readdirSync(`/proc/${engine.pid}/fd`).length;
    await call(engine.socketPath, 'GET', url('leaver', '/etc'));
    const before = openFiles();
    for (let count = 0; count < 5; count++) {
      const reply = await open(engine.socketPath, 'GET', url('leaver', '/big'));
      await once(reply.message, 'data');
      reply.close();
      const outgoing = request({ socketPath: engine.socketPath, method: 'PUT', path: url('leaver', '/tmp'), agent: false });
      outgoing.on('error', () => undefined);
      outgoing.write(tarOf([{ path: 'part', content: Buffer.alloc(1_000_000, 1) }]).subarray(0, 500_000));
      await new Promise((resolve) => setTimeout(resolve, 50));
      outgoing.destroy();
    }
    await waitFor(() => `descriptors to be closed: ${openFiles()}, ${before} before`, () => openFiles() <= before + 3);
    assert.equal((await call(engine.socketPath, 'GET', url('leaver', '/etc'))).status, 200);
    await ok('rm', '-f', 'leaver');
  });

  function residentKib(): number {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${engine.pid}/status`, 'utf8'))?.[1]);
  }
});

describe('races', () => {
  test('a container that swaps directories and links never gets the daemon to touch the host', { timeout: 120_000 }, async () => {
    const canary = scratch('canary');
    writeFileSync(join(canary, 'secret'), 'secret of the host');
    const before = JSON.stringify([describeTree(canary), statSync(canary).mtimeMs, statSync(canary).mode]);
    // Inside the container the same path holds something harmless, for a link that leads there.
    await running('racer', `mkdir -p ${canary} /r/dir /r/side; echo inner >${canary}/secret; echo plain >/r/dir/secret; ln -s ${canary} /r/link; ln -s ${canary}/secret /r/side/flink; echo f >/r/side/f`);
    const swap = 'while :; do mv -T /r/dir /r/x; mv -T /r/link /r/dir; mv -T /r/x /r/link; mv /r/side/f /r/side/y; mv /r/side/flink /r/side/f; mv /r/side/y /r/side/flink; done 2>/dev/null';
    await ok('exec', '-d', 'racer', 'sh', '-c', swap);
    await ok('exec', '-d', 'racer', 'sh', '-c', 'while :; do rm -rf /r/dir/in; ln -s / /r/dir/in; rm -rf /r/dir/in; mkdir /r/dir/in; done 2>/dev/null');
    const tar = tarOf([
      { path: 'dir/', type: 'directory', mode: 0o777, uid: 99, mtime: 5 },
      { path: 'dir/in/', type: 'directory', mode: 0o777, uid: 99 },
      { path: 'dir/in/planted', content: 'planted', uid: 99 },
      { path: 'dir/secret', content: 'overwritten', uid: 99 },
      { path: 'side/f', content: 'overwritten', mode: 0o777, uid: 99 },
      { path: 'dir/in/node', type: 'fifo', mode: 0o777, uid: 99 },
    ]);
    const deadline = Date.now() + (onDockerd ? 3_000 : 12_000);
    let reads = 0;
    let writes = 0;
    const reading = async (): Promise<void> => {
      while (Date.now() < deadline) {
        const reply = await call(engine.socketPath, 'GET', url('racer', reads % 2 === 0 ? '/r' : '/r/dir/'));
        assert.equal(reply.body.includes('secret of the host'), false, 'the host leaked');
        reads++;
      }
    };
    const writing = async (): Promise<void> => {
      while (Date.now() < deadline) {
        if ((await put('racer', '/r', tar)).status === 200) writes++;
      }
    };
    await Promise.all([reading(), reading(), writing(), writing()]);
    assert.ok(reads > 0 && writes > 0, `${reads} reads, ${writes} writes`);
    assert.equal(JSON.stringify([describeTree(canary), statSync(canary).mtimeMs, statSync(canary).mode]), before);
    assert.equal(existsSync('/planted') || existsSync('/node'), false);
    assert.equal(lstatSync('/').uid, 0);
    await ok('rm', '-f', 'racer');
  });

  test('copies while the container starts and stops end with the whole file or with an error', async () => {
    await ok('create', '--name', 'flip', image, 'sh', '-c', 'sleep 0.05');
    const deadline = Date.now() + 4_000;
    const flipping = async (): Promise<void> => {
      while (Date.now() < deadline) await cli('start', '-a', 'flip');
    };
    const copying = async (): Promise<void> => {
      while (Date.now() < deadline) {
        const reply = await call(engine.socketPath, 'GET', url('flip', '/etc/passwd'));
        assert.deepEqual([reply.status, reply.body.length], [200, 2048], reply.text);
      }
    };
    await Promise.all([flipping(), copying()]);
    await ok('rm', '-f', 'flip');
  });
});

test('a copy under way does not outlive a daemon that is killed', { skip: onDockerd }, async () => {
  await running('killed', 'head -c 50000000 /dev/zero >/big');
  const reply = await open(engine.socketPath, 'GET', url('killed', '/big'));
  await once(reply.message, 'data');
  reply.message.on('error', () => undefined);
  await engine.stop('SIGKILL');
  await engine.start();
  assert.equal((await stat('killed', '/big')).size, 50_000_000);
  await ok('rm', '-f', 'killed');
});
