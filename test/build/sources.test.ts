/** Builds fetch things: files of addresses and trees of repositories, from honest servers and from others. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { FileBuildCache } from '../../src/build/cache/build-cache.js';
import { Sources } from '../../src/build/sources/sources.js';
import type { LoadedSource, RemoteOrder } from '../../src/ports/build-sources.js';
import { createWorkerPool } from '../../src/workers/pool.js';
import { silentLog } from '../support/silent-log.js';
import { SourceServer } from '../support/source-server.js';
import { waitFor } from '../support/wait.js';

const directory = mkdtempSync(join(tmpdir(), 'sources-'));
const root = join(directory, 'builder/cache');
const temporary = join(directory, 'tmp');
const pool = createWorkerPool({ maxThreads: 1 });
let server: SourceServer;
let cache: FileBuildCache;
let sources: Sources;

before(async () => {
  mkdirSync(temporary);
  server = await SourceServer.start();
  await open();
});
after(async () => {
  await sources.close();
  await cache.close();
  await pool.close();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** Opens what is kept, as a daemon does that starts. */
async function open(): Promise<void> {
  const layers = { find: () => undefined, retain: () => undefined, release: () => Promise.resolve([]) };
  const owner = { uid: 0, gid: 0 };
  cache = new FileBuildCache({ root, layers, pool, owner, imageLayers: () => new Set(), log: silentLog });
  await cache.load();
  sources = new Sources({ kept: cache, tmpDir: temporary, pool });
}

const load = (url: string, order: Partial<RemoteOrder> = {}, signal = new AbortController().signal) =>
  sources.load({ url, checksum: '', keepGitDir: undefined, ...order }, signal);

/** Looks at what was loaded, and gives it back. */
async function look<T>(loading: Promise<LoadedSource>, use: (source: LoadedSource) => T): Promise<T> {
  const source = await loading;
  try {
    return use(source);
  } finally {
    await source.release();
  }
}

const files = (source: LoadedSource): string[] =>
  readdirSync(source.directory, { recursive: true }).map(String).toSorted();
const fails = (loading: Promise<LoadedSource>, message: RegExp | string): Promise<void> =>
  assert.rejects(loading, typeof message === 'string' ? { message } : message);

describe('files at addresses', () => {
  test('have the name of the path, the time of the server, and no rights for others', async () => {
    server.file('/dir/a%20b', 'text', { 'last-modified': 'Wed, 21 Oct 2015 07:28:00 GMT' });
    server.page('/moved', (_request, response) => response.writeHead(302, { location: '/dir/a%20b' }).end());
    const seen: (number | undefined)[][] = [];
    await look(load(`${server.url}/dir/a%20b?x=/y`, { progress: (...bytes) => seen.push(bytes) }), (source) => {
      assert.equal(source.path, '/a b');
      const path = join(source.directory, 'a b');
      const { mode, mtimeMs } = statSync(path);
      assert.equal(mode & 0o7777, 0o600);
      assert.equal(mtimeMs, Date.UTC(2015, 9, 21, 7, 28));
      assert.equal(readFileSync(path, 'utf8'), 'text');
      assert.equal(source.key, `sha256:${sha256('text')}`);
    });
    assert.deepEqual(seen.at(-1), [4, 4]);
    assert.equal(await look(load(`${server.url}/moved`), ({ path }) => path), '/moved');
    server.file('/', 'index');
    assert.equal(await look(load(server.url), ({ path }) => path), '/__unnamed__');
    assert.deepEqual(readdirSync(temporary), []);
  });

  test('are compared with their checksum', async () => {
    server.file('/sum', 'sum');
    const right = `sha256:${sha256('sum')}`;
    assert.equal(await look(load(`${server.url}/sum`, { checksum: right }), ({ key }) => key), right);
    const wrong = `sha256:${'0'.repeat(64)}`;
    await fails(load(`${server.url}/sum`, { checksum: wrong }), `digest mismatch ${right}: ${wrong}`);
    await fails(load(`${server.url}/sum`, { checksum: 'md5:00' }), 'unsupported digest algorithm');
  });

  test('are asked for again by their version, and kept over a restart', async () => {
    let version = 1;
    let sent = 0;
    server.page('/versions', (request, response) => {
      const etag = `"${version}"`;
      const isKnown = request.headers['if-none-match'] === etag;
      if (!isKnown) sent++;
      response.writeHead(isKnown ? 304 : 200, { etag }).end(isKnown ? undefined : `version ${version}`);
    });
    const content = (): Promise<string> =>
      look(load(`${server.url}/versions`), (source) => readFileSync(join(source.directory, 'versions'), 'utf8'));
    assert.equal(await content(), 'version 1');
    assert.equal(await content(), 'version 1');
    await sources.close();
    await cache.close();
    await open();
    assert.equal(await content(), 'version 1');
    assert.equal(sent, 1);
    version = 2;
    assert.equal(await content(), 'version 2');
    assert.equal(sent, 2);
    const usages = await cache.usage();
    assert.ok(usages.some(({ description }) => description === `http url ${server.url}/versions`));
    assert.deepEqual(
      usages.filter(({ inUse }) => inUse),
      [],
    );
    const all = { all: true, keepDurationMs: 0, reservedSpace: 0, maxUsedSpace: 0, minFreeSpace: 0 };
    assert.equal((await cache.prune({ ...all, selects: () => true })).removed.length, usages.length);
    assert.equal(await content(), 'version 2');
    assert.equal(sent, 3);
  });

  test('a password stays with its server, and out of all messages and records', async () => {
    const other = await SourceServer.start();
    other.file('/end', 'end', { etag: '"1"' });
    const location = `${other.url}/end`;
    server.page('/login', (_request, response) => response.writeHead(302, { location }).end());
    const url = `${server.url.replace('//', '//me:secret@')}/login`;
    await look(load(url), () => undefined);
    assert.equal(server.logins.at(-1), `Basic ${Buffer.from('me:secret').toString('base64')}`);
    assert.deepEqual(other.logins, ['']);
    assert.doesNotMatch(JSON.stringify(await cache.usage()), /secret/);
    await other.stop();
    await assert.rejects(load(url), (error: Error) => !error.message.includes('secret'));
  });

  test('that do not come have the words of dockerd', async () => {
    server.page('/loop', (_request, response) => response.writeHead(302, { location: '/loop' }).end());
    server.page('/short', (_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('x', () => response.destroy());
    });
    server.page('/long', (_request, response) =>
      response.writeHead(200, { 'content-length': '9'.repeat(15) }).end('x'),
    );
    await fails(load(`${server.url}/nothing`), 'invalid response status 404');
    await fails(load(`${server.url}/loop?secret`), 'Get "/loop": stopped after 10 redirects');
    await fails(load(`${server.url}/short`), 'unexpected EOF');
    await fails(load(`${server.url}/long`), /no space left on device/);
    await fails(load('http://127.0.0.1:1/x'), /: dial tcp 127\.0\.0\.1:1: connect: connection refused$/);
    assert.deepEqual(readdirSync(temporary), []);
  });

  test('that never end are given up at once', async () => {
    let isClosed = false;
    for (const path of ['/silent', '/endless'])
      server.page(path, (_request, response) => {
        isClosed = false;
        response.on('close', () => (isClosed = true));
        response.writeHead(path === '/silent' ? 200 : 302, path === '/silent' ? {} : { location: '/silent' });
        response.write('a beginning');
      });
    for (const path of ['/silent', '/endless']) {
      const abort = new AbortController();
      server.asked.length = 0;
      const loading = load(`${server.url}${path}`, {}, abort.signal);
      await waitFor('the request', () => server.asked.at(-1) === 'GET /silent');
      abort.abort();
      await fails(loading, 'context canceled');
      await waitFor('the connection to close', () => isClosed);
    }
    assert.deepEqual(readdirSync(temporary), []);
  });

  test('are unpacked when they are archives, and nothing gets out of the directory', async () => {
    const packed = join(directory, 'packed');
    mkdirSync(join(packed, 'in'), { recursive: true });
    execFileSync('sh', ['-c', 'echo kept > in/f; ln -s /etc in/link'], { cwd: packed });
    const tar = (...args: readonly string[]): Buffer => execFileSync('tar', ['-C', packed, ...args]);
    server.file('/a.tgz', tar('-cz', '--owner=5', '--group=6', 'in'));
    await look(load(`${server.url}/a.tgz`, { unpacks: true }), (source) => {
      assert.deepEqual([source.kind, source.path], ['archive', '/']);
      assert.deepEqual(readdirSync(join(source.directory, 'in')).toSorted(), ['f', 'link']);
      const { uid, gid } = lstatSync(join(source.directory, 'in/f'));
      assert.deepEqual([uid, gid], [5, 6]);
    });
    server.file('/up.tar', tar('-cP', '--transform=s,^in,../../../escaped,', 'in'));
    server.file('/link.tar', tar('-cP', '--transform=s,^in/f,in/link/escaped-by-link,', 'in/link', 'in/f'));
    for (const name of ['up.tar', 'link.tar'])
      await look(load(`${server.url}/${name}`, { unpacks: true }), () => undefined).catch(() => undefined);
    for (const path of [join(directory, 'escaped'), join(temporary, 'escaped'), '/etc/escaped-by-link'])
      assert.equal(existsSync(path), false, path);
  });
});

describe('git repositories', () => {
  let first: string;
  let second: string;
  const repository = (rest = ''): string => `${server.url}/git/repo.git${rest}`;

  before(() => {
    first = server.commit('repo', { f: 'one', 'dir/g': 'g', 'to-dir@': 'dir', 'out@': '../../../../etc' });
    server.git(join(server.directory, 'repo'), 'tag', '-a', '-m', 'a tag', 'v1');
    second = server.commit('repo', { f: 'two' }, 'other');
    server.git(join(server.directory, 'repo'), 'symbolic-ref', 'HEAD', 'refs/heads/main');
  });

  const content = (url: string, order: Partial<RemoteOrder> = {}): Promise<string> =>
    look(load(url, order), (source) => readFileSync(join(source.directory, 'f'), 'utf8'));

  test('come by branch, tag, commit and query', async () => {
    for (const rest of ['', '#main', '#v1', `#${first}`, '#refs/tags/v1', '?tag=v1', `?branch=main&commit=${first}`])
      assert.equal(await content(repository(rest)), 'one', rest);
    for (const rest of ['#other', '?ref=other', '?branch=other', `#${second}`])
      assert.equal(await content(repository(rest)), 'two', rest);
    await look(load(repository('#main:/dir/../dir')), (source) => assert.deepEqual(files(source), ['g']));
    await look(load(repository('?subdir=dir')), (source) => assert.deepEqual(files(source), ['g']));
  });

  test('have no history unless it is asked for', async () => {
    await look(load(repository('#v1')), (source) => assert.ok(!existsSync(join(source.directory, '.git'))));
    await look(load(repository('#v1'), { keepGitDir: true }), ({ directory: at }) => {
      assert.equal(server.git(at, 'rev-parse', 'HEAD').trim(), first);
      assert.equal(server.git(at, 'rev-parse', 'v1^{commit}').trim(), first);
      assert.equal(server.git(at, 'status', '--porcelain'), '');
      assert.equal(server.git(at, 'config', 'remote.origin.url').trim(), repository());
    });
    await look(load(repository('?keep-git-dir=1')), (source) => assert.ok(existsSync(join(source.directory, '.git'))));
  });

  test('are fetched once', async () => {
    await content(repository('#other'));
    const before_ = server.asked.length;
    assert.equal(await content(repository(`#${second}`)), 'two');
    assert.equal(server.asked.length, before_);
    assert.match(JSON.stringify(await cache.usage()), /source\.git\.checkout.*git repository/);
    const both = await Promise.all([content(repository('#main')), content(repository('#other'))]);
    assert.deepEqual(both, ['one', 'two']);
  });

  test('are compared with their checksum', async () => {
    assert.equal(await content(repository('#other'), { checksum: second.slice(0, 7) }), 'two');
    const message = `expected checksum to match 1234567, got ${second}`;
    await fails(load(repository('#other'), { checksum: '1234567' }), message);
    await fails(load(repository('?branch=other&checksum=1234567')), message);
    await fails(load(repository(), { checksum: 'zz' }), 'invalid checksum zz for Git URL, expected hex commit hash');
  });

  test('stay inside their directory, and mistakes have the words of dockerd', async () => {
    const told = (name: string): string =>
      `invalid subdir /${name}: git subpath "/${name}" contains non-directory "${name}"`;
    for (const name of ['to-dir', 'out', 'f']) await fails(load(repository(`#main:${name}`)), told(name));
    await fails(
      load(repository('#main:../../nope')),
      'invalid subdir /nope: failed to lstat "nope": statat nope: no such file or directory',
    );
    await fails(load(repository('#nope')), 'repository does not contain ref nope, output: ""');
    await fails(load(repository('#--upload-pack=touch /tmp/x')), 'invalid git ref "--upload-pack=touch /tmp/x"');
    await fails(
      load(`${server.url}/git/none.git`),
      /^Error.*|error fetching default branch for repository .*not found/s,
    );
    await fails(load('git://127.0.0.1:1/x.git'), /Connection refused\n+: exit status 128$/);
    assert.deepEqual(readdirSync(temporary), []);
  });

  test('bring their submodules, but not from this machine', async () => {
    const module = server.commit('module', { inside: 'module' });
    server.commit('with-module', { f: 'f' });
    server.addModule('with-module', 'sub', '../module.git', module);
    await look(load(`${server.url}/git/with-module.git`), (source) =>
      assert.equal(readFileSync(join(source.directory, 'sub/inside'), 'utf8'), 'module'),
    );
    await look(load(`${server.url}/git/with-module.git?submodules=0`), (source) =>
      assert.deepEqual(readdirSync(join(source.directory, 'sub')), []),
    );
    for (const [index, url] of [`file://${server.directory}/module`, join(server.directory, 'module')].entries()) {
      server.commit(`evil-${index}`, { f: 'f' });
      server.addModule(`evil-${index}`, 'sub', url, module);
      await fails(load(`${server.url}/git/evil-${index}.git`), /transport 'file' not allowed/);
    }
    server.commit('evil-option', { f: 'f' });
    server.addModule('evil-option', 'sub', `--upload-pack=touch ${directory}/run`, module);
    await look(load(`${server.url}/git/evil-option.git`), () => undefined).catch(() => undefined);
    assert.equal(existsSync(join(directory, 'run')), false);
  });

  test('are opened by secrets, which git does not show', async () => {
    const basic = `basic ${Buffer.from('x-access-token:hidden').toString('base64')}`;
    server.wantedLogin = basic;
    const asked: string[] = [];
    const secret = async (id: string): Promise<Buffer | undefined> => {
      asked.push(id);
      return id === 'GIT_AUTH_TOKEN' ? Buffer.from('hidden\n') : undefined;
    };
    const printed: string[] = [];
    const output = (_stream: 1 | 2, bytes: Buffer): void => void printed.push(bytes.toString());
    const url = `${server.url}/git/module.git`;
    await look(load(url, { secret, output }), (source) => assert.deepEqual(files(source), ['inside']));
    assert.deepEqual(
      asked.slice(0, 2),
      [1, 2].map((n) => `GIT_AUTH_${n === 1 ? 'HEADER' : 'TOKEN'}.${new URL(url).host}`),
    );
    assert.doesNotMatch(printed.join(''), /hidden|eC1h/);
    await fails(load(`${url}?ref=main`), /could not read Username|terminal prompts disabled|Authentication failed/);
    server.wantedLogin = '';
  });

  test('that have moved are followed, and a login stays with its server', async () => {
    const basic = `basic ${Buffer.from('x-access-token:hidden').toString('base64')}`;
    const away = server.url.replace('127.0.0.1', 'localhost');
    const refs = '/info/refs?service=git-upload-pack';
    for (const [name, to] of [
      ['old', '/moved/older.git'],
      ['older', '/git/module.git'],
      ['gone', `${away}/git/module.git`],
    ])
      server.page(`/moved/${name}.git/info/refs`, (_request, response) =>
        response.writeHead(301, { location: `${to}${refs}` }).end(),
      );
    const secret = (id: string): Promise<Buffer | undefined> =>
      Promise.resolve(id === 'GIT_AUTH_TOKEN' ? Buffer.from('hidden') : undefined);
    server.wantedLogin = basic;
    const module = server.git(join(server.directory, 'module'), 'rev-parse', 'HEAD').trim();
    server.commit('holder', { top: 'top' });
    server.addModule('holder', 'sub', `${server.url}/moved/older.git`, module);
    await look(load(`${server.url}/moved/old.git`, { secret }), (source) =>
      assert.deepEqual(files(source), ['inside']),
    );
    await look(load(`${server.url}/git/holder.git`, { secret }), (source) =>
      assert.ok(files(source).includes('sub/inside')),
    );
    // One that was fetched before another one was found to have moved has its files, too.
    server.page('/git/alike.git/info/refs', (_request, response) =>
      response.writeHead(301, { location: `/git/module.git${refs}` }).end(),
    );
    const other = server.commit('alike.git-lib', { other: 'other' });
    server.commit('alikes', { top: 'top' });
    server.addModule('alikes', 'sub', `${server.url}/git/alike.git`, module);
    server.addModule('alikes', 'the-lib', `${server.url}/git/alike.git-lib.git`, other);
    await look(load(`${server.url}/git/alikes.git`, { secret }), (source) =>
      assert.ok(['sub/inside', 'the-lib/other'].every((file) => files(source).includes(file))),
    );
    // The move is not that of a module whose address begins alike, which comes when the move is known.
    server.commit('outer', { top: 'top' });
    server.commit('inner', { top: 'top' });
    server.addModule('inner', 'the-lib', `${server.url}/git/alike.git-lib.git`, other);
    const head = server.git(join(server.directory, 'inner'), 'rev-parse', 'HEAD').trim();
    server.addModule('outer', 'sub', `${server.url}/git/alike.git`, module);
    server.addModule('outer', 'the-inner', `${server.url}/git/inner.git`, head);
    await look(load(`${server.url}/git/outer.git`, { secret }), (source) =>
      assert.ok(['sub/inside', 'the-inner/the-lib/other'].every((file) => files(source).includes(file))),
    );
    server.wantedLogin = '';
    server.visitors.length = 0;
    await look(load(`${server.url}/moved/gone.git`, { secret }), (source) =>
      assert.deepEqual(files(source), ['inside']),
    );
    const elsewhere = server.visitors.filter(({ host }) => host?.startsWith('localhost'));
    assert.ok(elsewhere.length > 1);
    assert.deepEqual([...new Set(elsewhere.map(({ login }) => login))], ['']);
  });

  test('that never answer are given up at once, with all processes', async () => {
    const silent = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => silent.once('listening', resolve));
    const { port } = silent.address() as { port: number };
    const abort = new AbortController();
    const connected = new Promise<Socket>((resolve) => silent.once('connection', resolve));
    const loading = load(`git://127.0.0.1:${port}/x.git`, {}, abort.signal);
    const connection = await connected;
    const closed = new Promise((resolve) => connection.once('close', resolve));
    connection.resume();
    abort.abort();
    await fails(loading, 'context canceled');
    await closed;
    await new Promise((resolve) => silent.close(resolve));
  });
});

function sha256(text: string): string {
  return execFileSync('sha256sum', { input: text }).toString().slice(0, 64);
}
