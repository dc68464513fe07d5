/** Builds from addresses and repositories, by both doors. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call } from '../support/http.js';
import { fileOf, namesIn } from '../support/image-files.js';
import { SourceServer } from '../support/source-server.js';

const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const network = ['--network', 'none'];
const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'remote-'));
let engine: Engine;
let image: string;
let server: SourceServer;
let buildx: Buildx;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  server = await SourceServer.start();
  cleanup.add(() => server.stop());
  buildx = new Buildx(join(directory, 'work'), engine.host);
  const made = join(directory, 'made');
  execFileSync('mkdir', [made]);
  writeFileSync(join(made, 'Dockerfile'), `FROM ${image}\nCOPY f /f\nRUN ls -ln /f > /owner\n`);
  writeFileSync(join(made, 'f'), 'of an archive');
  server.file('/context.tgz', execFileSync('tar', ['-C', made, '--owner=5', '--group=6', '-cz', '.']));
  server.file('/plain', `FROM ${image}\nRUN echo plain > /f\n`, { 'content-type': 'text/plain' });
  server.file('/page', '<html>', { 'content-type': 'text/html' });
  server.file('/file', 'fetched', { 'last-modified': 'Wed, 21 Oct 2015 07:28:00 GMT' });
  server.commit('repo', { Dockerfile: `FROM ${image}\nCOPY . /c\n`, 'dir/Dockerfile': `FROM ${image}\nCOPY . /c\n` });
  server.commit('repo', { 'dir/f': 'of a branch' }, 'other');
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

const textOf = (name: string, path: string): Promise<string> => fileOf(engine, name, path);

describe('the classic door', () => {
  const remote = async (url: string, query = ''): Promise<{ status: number | undefined; text: string }> => {
    const { status, body } = await call(
      engine.socketPath,
      'POST',
      `/build?remote=${encodeURIComponent(url)}&t=classic&forcerm=1&${query}`,
    );
    return { status, text: body.toString() };
  };

  test('builds from an archive, and all of it belongs to root', async () => {
    const url = `${server.url}/context.tgz`;
    const { text } = await remote(url);
    assert.match(text, /Successfully built/);
    assert.ok(text.includes(`{"status":"${url}","progressDetail":{"current":`), text);
    assert.ok(text.includes('"id":"Downloading context"}'), text);
    assert.equal(await textOf('classic', '/f'), 'of an archive');
    assert.match(await textOf('classic', '/owner'), / 0 +0 /);
    assert.match((await remote(url, 'q=1')).text, /^\{"stream":"sha256:[0-9a-f]{64}\\n"\}\r\n$/);
  });

  test('builds from a Dockerfile, and from a directory of a branch with its history', async () => {
    assert.match((await remote(`${server.url}/plain`)).text, /Successfully built/);
    assert.equal((await textOf('classic', '/f')).trim(), 'plain');
    const { text } = await remote(`${server.url}/git/repo.git#other:dir`);
    assert.match(text, /Successfully built/);
    assert.equal(await textOf('classic', '/c/f'), 'of a branch');
    assert.match((await remote(`${server.url}/git/repo.git#other`)).text, /Successfully built/);
    assert.ok((await namesIn(engine, 'classic', '/c')).includes('c/.git/'));
  });

  test('refuses addresses in the words of dockerd', async () => {
    const { url } = server;
    const failures: readonly (readonly [string, number, string | RegExp])[] = [
      ['nonsense', 500, 'remoteURL (nonsense) could not be recognized as URL'],
      ['client-session', 400, /^experimental session with v1 builder is no longer supported/],
      [
        `${url}/none`,
        404,
        /^error downloading remote context (\S+\/none): failed to GET \1 with status 404 Not Found: nothing is here$/,
      ],
      [`${url}/page`, 500, /error detecting content type for remote .*unsupported Content-Type .*text\/html/],
      [
        'http://me:secret@127.0.0.1:1/x',
        500,
        /^error downloading remote context http:\/\/xxxxx@127.0.0.1:1\/x: .*connection refused$/,
      ],
      [`${url}/git/repo.git#nope`, 400, /does not contain ref nope/],
      ['git@-oProxyCommand=x:y', 500, /could not be recognized/],
      ['file:///etc', 500, /could not be recognized/],
    ];
    for (const [address, status, message] of failures) {
      const answer = await remote(address);
      const said = answer.text.includes('"errorDetail"')
        ? answer.text
        : (JSON.parse(answer.text) as { message: string }).message;
      if (typeof message === 'string') assert.ok(said.includes(message), `${address}: ${said}`);
      else assert.match(said, message);
      if (!answer.text.includes('"errorDetail"')) assert.equal(answer.status, status, address);
    }
  });

  test('ADD fetches files and says so', async () => {
    const add = async (source: string, more = ''): Promise<string> => {
      const dockerfile = `FROM ${image}\nADD ${source}\n${more}`;
      writeFileSync(join(directory, 'Dockerfile'), dockerfile);
      const body = execFileSync('tar', ['-C', directory, '-c', 'Dockerfile']);
      const headers = { 'Content-Type': 'application/x-tar' };
      return (await call(engine.socketPath, 'POST', '/build?t=added&forcerm=1', { body, headers })).body.toString();
    };
    const first = await add(`--chown=5:6 ${server.url}/file ${server.url}/context.tgz /d/`, 'RUN ls -ln /d > /list');
    assert.ok(
      first.includes('{"status":"Downloading","progressDetail":{"current":7,"total":7},"progress":"[==='),
      first,
    );
    assert.match(await textOf('added', '/list'), /^-rw-------.* 5 +6 +7 Oct 21 +2015 file$/m);
    assert.match(await textOf('added', '/list'), / context\.tgz$/m);
    assert.match(await add(`--chown=5:6 ${server.url}/file ${server.url}/context.tgz /d/`), /Using cache/);
    assert.match(
      await add(`${server.url}/none /x`),
      /ADD failed: failed to GET .*\/none with status 404 Not Found: nothing/,
    );
    assert.match(await add(`${server.url}/ /x/`), /ADD failed/);
    assert.match(await add('http://127.0.0.1:1/x /x'), /ADD failed: .*connection refused/);
    assert.match(await add(`--chmod=755 ${server.url}/file /x`), /the --chmod option requires BuildKit/);
  });
});

describe('the door of BuildKit', { skip }, () => {
  test('builds from an archive and from a Dockerfile', async () => {
    await buildx.ok(['build', ...network, '-t', 'kit', `${server.url}/context.tgz`]);
    assert.equal(await textOf('kit', '/f'), 'of an archive');
    await buildx.ok(['build', ...network, '-t', 'kit', `${server.url}/plain`]);
    assert.equal((await textOf('kit', '/f')).trim(), 'plain');
    const { stderr } = await buildx.run(['build', `${server.url}/none`]);
    assert.match(stderr, /failed to read downloaded context: failed to load cache key: invalid response status 404/);
  });

  test('builds from a repository', async () => {
    const { stderr } = await buildx.ok(['build', '-t', 'kit', `${server.url}/git/repo.git#other:dir`]);
    assert.match(stderr, /\[internal\] load git source .*repo\.git#other:dir/);
    assert.match(stderr, /refs\/heads\/other/);
    assert.equal(await textOf('kit', '/c/f'), 'of a branch');
    await buildx.ok(['build', '-t', 'kit', `${server.url}/git/repo.git?branch=other&subdir=dir`]);
    const kept = ['--build-arg', 'BUILDKIT_CONTEXT_KEEP_GIT_DIR=1'];
    await buildx.ok(['build', ...kept, '-t', 'kit', `${server.url}/git/repo.git#other`]);
    assert.ok((await namesIn(engine, 'kit', '/c')).includes('c/.git/'));
    const absent = await buildx.run(['build', `${server.url}/git/repo.git#nope`]);
    assert.match(
      absent.stderr,
      /failed to read dockerfile: failed to load cache key: repository does not contain ref nope/,
    );
    assert.match((await buildx.ok(['buildx', 'du', '--verbose'])).stdout, /source\.git\.checkout/);
  });
});

describe('a Dockerfile of BuildKit', { skip }, () => {
  test('ADD fetches files and repositories', async () => {
    const { url } = server;
    const sum = `sha256:${execFileSync('sha256sum', { input: 'fetched' }).toString().slice(0, 64)}`;
    const steps = [
      `ADD --checksum=${sum} ${url}/file /d/`,
      `ADD --chown=5:6 --chmod=640 ${url}/file /named`,
      `ADD ${url}/context.tgz /packed/`,
      `ADD --unpack ${url}/context.tgz /unpacked/`,
      `ADD ${url}/git/repo.git#other:dir /branch/`,
      `ADD --keep-git-dir ${url}/git/repo.git /repo`,
      'RUN ls -ln /d/file /named /packed /unpacked > /list; cat /branch/f >> /list; test -d /repo/.git',
    ];
    buildx.write('add/Dockerfile', [`FROM ${image}`, ...steps].join('\n'));
    const { stderr } = await buildx.ok(['build', ...network, '-t', 'added', '.'], { in: 'add' });
    assert.match(stderr, /refs\/heads\/other/);
    const list = await textOf('added', '/list');
    assert.match(list, /^-rw------- .* 0 +0 +7 Oct 21 +2015 \/d\/file$/m);
    assert.match(list, /^-rw-r----- .* 5 +6 +7 Oct 21 +2015 \/named$/m);
    assert.match(list, / context\.tgz$/m);
    assert.match(list, / 5 +6 .* f$/m);
    assert.match(list, /of a branch$/);
    const again = await buildx.ok(['build', ...network, '.'], { in: 'add' });
    assert.equal(again.stderr.match(/CACHED/g)?.length, 7, again.stderr);
  });

  test('ADD fails in the words of dockerd', async () => {
    const { url } = server;
    const failures: readonly (readonly [string, RegExp])[] = [
      [`${url}/none`, /failed to solve: failed to load cache key: invalid response status 404$/m],
      [`--checksum=sha256:${'0'.repeat(64)} ${url}/file`, /failed to solve: digest mismatch sha256:\w+: sha256:0+$/m],
      [`--checksum=md5:00 ${url}/file`, /unsupported digest algorithm/],
      [`${url}/git/repo.git#nope`, /failed to load cache key: repository does not contain ref nope, output: ""$/m],
      [`${url}/git/repo.git#main:Dockerfile`, /failed to solve: invalid subdir \/Dockerfile: git subpath/],
      [`${url}/git/repo.git?foo=bar`, /2 \| >>> ADD [^]*unexpected query "foo"/],
    ];
    for (const [source, message] of failures) {
      const { status, stderr } = await buildx.run(['build', '-'], { input: `FROM ${image}\nADD ${source} /x\n` });
      assert.equal(status, 1, source);
      assert.match(stderr, message);
    }
  });

  test('a repository is opened by a secret, and a password is nowhere to be seen', async () => {
    const { url } = server;
    server.wantedLogin = `basic ${Buffer.from('x-access-token:hidden').toString('base64')}`;
    const secret = ['--secret', 'id=GIT_AUTH_TOKEN,env=TOKEN'];
    await buildx.ok(['build', ...secret, `${url}/git/repo.git#other`], { env: { TOKEN: 'hidden' } });
    server.wantedLogin = `basic ${Buffer.from('me:hidden').toString('base64')}`;
    const login = `${url.replace('//', '//me:hidden@')}/git/repo.git#other`;
    const { stderr } = await buildx.ok(['build', '-t', 'secret', '-'], { input: `FROM ${image}\nADD ${login} /x\n` });
    server.wantedLogin = '';
    assert.doesNotMatch(stderr + (await engineOk(engine, ['history', '--no-trunc', 'secret'])), /hidden/);
  });

  test('named contexts are directories, addresses and repositories, also in place of a base', async () => {
    const { url } = server;
    const copies = 'COPY --from=local . /l\nCOPY --from=tar . /t\nCOPY --from=git f /g\n';
    buildx.write('named/Dockerfile', `FROM base\n${copies}`);
    for (const [name, text] of Object.entries({ kept: 'kept', left: 'left', '.dockerignore': 'left' }))
      buildx.write(`named/dir/${name}`, text);
    const contexts = {
      base: `docker-image://${image}`,
      local: './dir',
      tar: `${url}/context.tgz`,
      git: `${url}/git/repo.git#other:dir`,
    };
    const flags = Object.entries(contexts).flatMap(([name, value]) => ['--build-context', `${name}=${value}`]);
    await buildx.ok(['build', ...flags, '-t', 'named', '.'], { in: 'named' });
    const look = async (name: string): Promise<void> => {
      assert.deepEqual(await namesIn(engine, name, '/l'), ['l/', 'l/.dockerignore', 'l/kept']);
      assert.deepEqual([await textOf(name, '/t/f'), await textOf(name, '/g')], ['of an archive', 'of a branch']);
    };
    await look('named');
    const lines = Object.entries(contexts).map(([name, value]) => `${name} = "${value}"`);
    const bake = `target "default" {\n contexts = {\n${lines.join(',\n')}\n}\n tags = ["baked"]\n}\n`;
    buildx.write('named/docker-bake.hcl', bake);
    await buildx.ok(['buildx', 'bake'], { in: 'named' });
    await look('baked');
    buildx.write('dir-base/Dockerfile', `FROM base AS files\nFROM ${image}\nCOPY --from=files kept /k\n`);
    const base = ['--build-context', 'base=../named/dir'];
    await buildx.ok(['build', ...base, '-t', 'on-directory', '.'], { in: 'dir-base' });
    assert.equal(await textOf('on-directory', '/k'), 'kept');
  });
});

test('nothing of a build stays in the temporary directory', () => {
  const left = readdirSync(join(engine.dir, 'data', 'tmp')).filter((name) => name.startsWith('build-'));
  assert.deepEqual(left, []);
});
