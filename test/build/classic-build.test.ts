/** The classic door of the builder: a tar becomes an image. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Cleanup } from '../support/cleanup.js';
import type { LayerEntry } from '../support/image-builder.js';
import { archiveOf } from '../support/image-archives.js';
import { type EngineWithImage, startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import { waitFor } from '../support/wait.js';

describe('classic build', () => {
  const cleanup = new Cleanup();
  let under: EngineWithImage;
  before(async () => void (under = await startEngineWithImage(cleanup)));
  after(() => cleanup.run());

  const build = (files: Readonly<Record<string, string>>, query: string): Promise<Answer> =>
    post(under.engine.socketPath, `/build?${query}`, tarOf(files));

  it('makes an image of each kind of step, names it, and takes it from the cache', async () => {
    const files = {
      Dockerfile: [
        'ARG BASE',
        'FROM ${BASE} AS one',
        'RUN echo made > /made && echo shown',
        'FROM ${BASE}',
        'ENV A=b',
        'WORKDIR /work',
        'COPY --from=one /made .',
        'COPY dir /copied',
        'COPY . /all',
        'RUN test -e /copied/kept && test ! -e /all/.dockerignore',
        'CMD ["cat", "/work/made"]',
      ].join('\n'),
      'dir/kept': 'kept',
      '.dockerignore': '.dockerignore',
    };
    const query = `t=built:1&rm=1&buildargs=${encodeURIComponent(JSON.stringify({ BASE: under.image }))}`;
    const first = await build(files, query);
    assert.equal(first.status, 200, first.text);
    assert.match(first.text, /Step 11\/11 : CMD/);
    assert.match(first.text, /shown\\n/);
    const [, id = ''] = /Successfully built ([0-9a-f]{12})/.exec(first.text) ?? [];
    assert.match(first.text, /Successfully tagged built:1/);
    const image = await callJson<{ Id: string; Config: { Env: string[]; WorkingDir: string; Cmd: string[] } }>(
      under.engine.socketPath,
      'GET',
      '/images/built:1/json',
    );
    assert.ok(image.Id.startsWith(`sha256:${id}`));
    assert.equal(image.Config.WorkingDir, '/work');
    assert.deepEqual(image.Config.Cmd, ['cat', '/work/made']);
    const second = await build(files, query);
    assert.equal(second.text.match(/Using cache/g)?.length, 8, second.text);
    assert.ok(second.text.includes(`Successfully built ${id}`));
  });

  it('takes steps from the images that it is told, by their histories, and from no others', async () => {
    const dockerfile = (last: string): Record<string, string> => ({
      Dockerfile: `FROM ${under.image}\nENV FROM_AFAR=1\nRUN echo one > /one\nRUN echo ${last} > /last`,
    });
    const from = (...names: string[]): string => `cachefrom=${encodeURIComponent(JSON.stringify(names))}`;
    const used = ({ text }: Answer): number => text.match(/Using cache/g)?.length ?? 0;
    const made = await build(dockerfile('two'), 't=afar:1');
    const [, id = ''] = /Successfully built ([0-9a-f]{12})/.exec(made.text) ?? [];
    // An archive has no parents, so nothing but the history tells of the steps.
    const { body } = await call(under.engine.socketPath, 'GET', '/images/afar:1/get');
    await callJson(under.engine.socketPath, 'DELETE', '/images/afar:1');
    await call(under.engine.socketPath, 'POST', '/images/load', { body });
    const whole = await build(dockerfile('two'), `t=afar:2&${from('nosuch:1', 'afar:1')}`);
    assert.equal(used(whole), 3, whole.text);
    assert.ok(whole.text.includes(`Successfully built ${id}`));
    const part = await build(dockerfile('three'), `t=afar:3&${from('afar:1')}`);
    assert.equal(used(part), 2, part.text);
    assert.equal(used(await build(dockerfile('three'), `t=afar:3&${from('nosuch:1')}`)), 0);
    const none = await build(dockerfile('three'), `t=afar:3&${from('', 'UPPER')}`);
    assert.deepEqual([none.status, used(none)], [200, 0], 'an empty variable of a script is no error');
    assert.equal(used(await build(dockerfile('three'), `t=afar:3&${from()}`)), 3, 'no names are no limit');
    const bad = await build(dockerfile('two'), 'cachefrom=%7B%7D');
    assert.deepEqual([bad.status, /error reading cachefrom/.test(bad.text)], [400, true], bad.text);
  });

  it('tells of each image that a step leaves, and of names', async () => {
    const { socketPath } = under.engine;
    const files = { Dockerfile: `FROM ${under.image}\nENV TOLD=1\nRUN true\nLABEL told=yes\n` };
    const told = async (): Promise<string[]> => {
      const since = (Date.now() / 1000).toFixed(3);
      assert.match((await build(files, 't=told')).text, /Successfully tagged told:latest/);
      const until = (Date.now() / 1000 + 0.001).toFixed(3);
      const filters = encodeURIComponent('{"type":["image"]}');
      const { text } = await call(socketPath, 'GET', `/events?since=${since}&until=${until}&filters=${filters}`);
      const events = text.trim().split('\n');
      return events.map((line) => {
        const { Action, Actor } = JSON.parse(line) as { Action: string; Actor: { Attributes: { name: string } } };
        return `${Action} ${Actor.Attributes.name.replace(/^sha256:.*/, 'ID')}`;
      });
    };
    assert.deepEqual(await told(), ['create ID', 'create ID', 'create ID', 'tag told:latest']);
    assert.deepEqual(await told(), ['tag told:latest'], 'all steps are cached');
  });

  it('takes null for what a client leaves out, as older ones write it', async () => {
    const query = ['buildargs', 'cachefrom', 'labels', 'ulimits'].map((name) => `${name}=null`).join('&');
    assert.match((await build({ Dockerfile: `FROM ${under.image}\n` }, query)).text, /Successfully built/);
    const members = 'cachefrom=[null]&ulimits=[null]';
    assert.match((await build({ Dockerfile: `FROM ${under.image}\n` }, members)).text, /Successfully built/);
  });

  it('says with which code a RUN has failed', async () => {
    const { text } = await build({ Dockerfile: `FROM ${under.image}\nRUN exit 7` }, 'forcerm=1');
    assert.match(text, /"errorDetail":\{"code":7,"message":"The command '\/bin\/sh -c exit 7' returned a non-zero/);
    const missing = await build({ Dockerfile: `FROM ${under.image}\nRUN ["/no"]` }, 'forcerm=1');
    assert.match(
      missing.text,
      /"errorDetail":\{"message":"failed to create task/,
      'no code of a command that never ran',
    );
  });

  it('waits for a client that reads slowly, and loses nothing of the output', async () => {
    const bytes = 30_000_000;
    const Dockerfile = `FROM ${under.image}\nRUN head -c ${bytes} /dev/zero | tr '\\0' y`;
    const { socketPath } = under.engine;
    const reply = await open(socketPath, 'POST', '/build', {
      body: tarOf({ Dockerfile }),
      headers: { 'Content-Type': 'application/x-tar' },
    });
    await waitFor(
      'the step to run',
      async () => (await callJson<object[]>(socketPath, 'GET', '/containers/json')).length,
    );
    let got = 0;
    let end = '';
    for await (const { stream = '' } of jsonLines<{ stream?: string }>(reply.message)) {
      if (/^y+$/.test(stream)) got += stream.length;
      end = stream;
    }
    assert.equal(got, bytes);
    assert.match(end, /^Successfully built/);
  });

  it('refuses what its result would lack, and makes nothing', async () => {
    const images = async (): Promise<object[]> => callJson(under.engine.socketPath, 'GET', '/images/json?all=1');
    const before_ = await images();
    for (const query of ['platform=windows'])
      assert.equal((await build({ Dockerfile: `FROM ${under.image}\nENV A=other` }, query)).status, 501, query);
    assert.deepEqual(await images(), before_);
  });

  it('refuses a FIFO for a Dockerfile, and waits for nobody who writes into it', async () => {
    const at = mkdtempSync(join(tmpdir(), 'fifo-'));
    try {
      execFileSync('mkfifo', [join(at, 'Dockerfile')]);
      const tar = execFileSync('tar', ['-C', at, '-cf', '-', '.']);
      // More than there are threads for files: each FIFO that was opened would take one for ever.
      for (let count = 0; count < 6; count++) {
        for (const version of ['1', '2']) {
          const refused = await post(under.engine.socketPath, `/build?version=${version}`, tar);
          assert.match(refused.text, /Dockerfile is not a file/);
        }
      }
      assert.equal((await build({ Dockerfile: `FROM ${under.image}\n` }, '')).status, 200);
    } finally {
      rmSync(at, { recursive: true, force: true });
    }
  });

  it('finds no files outside the context', async () => {
    const at = (source: string): Promise<Answer> =>
      build({ Dockerfile: `FROM ${under.image}\nCOPY ${source} /x`, 'link@': '/etc/passwd' }, '');
    for (const source of ['../../../../etc/passwd', '/etc/passwd', 'link']) {
      const words = /"message":"COPY failed: (?:file not found in|forbidden path outside the) build context/;
      assert.match((await at(source)).text, words, source);
    }
    // The file would be found, if the parent of the context were the context itself.
    const named = await build({ Dockerfile: `FROM ${under.image}\n` }, 'dockerfile=a/../../Dockerfile');
    assert.equal(named.status, 400);
    assert.match(named.text, /forbidden path outside the build context: a\/\.\.\/\.\.\/Dockerfile \(\)/);
  });

  it('refuses a body that is no archive, or a part of one, in the words of dockerd', async () => {
    const whole = archiveOf([{ path: 'Dockerfile', content: 'FROM scratch\n' }]);
    const bodies: readonly (readonly [body: Buffer, words: string])[] = [
      [Buffer.from('FROM scratch\n'), 'unexpected EOF'],
      [gzipSync('FROM scratch\n'), 'unexpected EOF'],
      [whole.subarray(0, 515), 'unexpected EOF'],
      [Buffer.alloc(5000, 'no archive '), 'archive/tar: invalid tar header'],
      [Buffer.alloc(2000, 0xfe), 'archive/tar: invalid tar header'],
    ];
    for (const [body, message] of bodies) {
      const { status, text } = await post(under.engine.socketPath, '/build', body);
      assert.deepEqual([status, JSON.parse(text)], [400, { message }]);
    }
  });

  it('refuses archives that lead outside, and Dockerfiles that are no files, in the words of dockerd', async () => {
    const Dockerfile = { path: 'Dockerfile', content: 'FROM scratch\n' };
    const link = (path: string, target: string): LayerEntry => ({ path, type: 'link', target });
    const outside = 'forbidden path outside the build context: Dockerfile ()';
    const cases: readonly (readonly [entries: readonly LayerEntry[], classic: string, buildKit: string])[] = [
      [[Dockerfile, { path: '../out', content: 'x' }], 'invalid entry name "../out"', ''],
      [[Dockerfile, link('h', '../../etc/passwd')], 'invalid hardlink target "../../etc/passwd"', ''],
      [[Dockerfile, link('h', 'nosuch')], 'linkat nosuch h: no such file or directory', ''],
      [
        [{ path: 'Dockerfile', type: 'directory' }],
        'unexpected error reading Dockerfile: read Dockerfile: is a directory',
        'read Dockerfile: is a directory',
      ],
      [[{ path: 'Dockerfile', type: 'symlink', target: 'Dockerfile' }], outside, 'too many links'],
    ];
    for (const [entries, classic, buildKit] of cases) {
      const tar = archiveOf(entries);
      const refused = await post(under.engine.socketPath, '/build', tar);
      assert.deepEqual([refused.status, JSON.parse(refused.text)], [400, { message: classic }]);
      const { text } = await post(under.engine.socketPath, '/build?version=2', tar);
      const message = `failed to read dockerfile: ${buildKit || classic}`;
      assert.ok(text.includes(JSON.stringify({ message })), `${message} in ${text}`);
    }
  });
});

interface Answer {
  readonly status: number | undefined;
  readonly text: string;
}

function post(socketPath: string, path: string, body: Buffer): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = { 'Content-Type': 'application/x-tar', 'Content-Length': body.length };
    const sent = request({ socketPath, path, method: 'POST', headers }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode, text: Buffer.concat(chunks).toString() }));
    });
    sent.on('error', reject).end(body);
  });
}

function tarOf(files: Readonly<Record<string, string>>): Buffer {
  const directory = mkdtempSync(join(tmpdir(), 'context-'));
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(directory, dirname(name)), { recursive: true });
      if (name.endsWith('@')) symlinkSync(text, join(directory, name.slice(0, -1)));
      else writeFileSync(join(directory, name), text);
    }
    return execFileSync('tar', ['-C', directory, '-c', '.']);
  } finally {
    rmSync(directory, { recursive: true });
  }
}
