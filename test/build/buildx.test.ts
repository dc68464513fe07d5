/** `docker build` as people type it: the unmodified CLI with buildx and compose. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx, type BuildxResult } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';
import { fileOf, namesIn } from '../support/image-files.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'buildx-'));
let engine: Engine;
let image: string;
let buildx: Buildx;
/** The same without the CLI around it, which takes more processor time than most builds here. */
let plugin: Buildx;
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  buildx = new Buildx(join(directory, 'work'), engine.host, 'docker');
  plugin = new Buildx(buildx.directory, engine.host);
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

describe('docker build', { skip }, () => {
  test('makes an image of a context, takes steps from the cache, and keeps to the ignore file', async () => {
    const dockerfile =
      `FROM ${image}\nARG WHO=nobody\nCOPY . /app\n` +
      'RUN echo "hello $WHO" > /hello && ls /app\nCMD ["cat", "/hello"]\n';
    buildx.write('a/Dockerfile', dockerfile);
    buildx.write('a/.dockerignore', 'left-out\nDockerfile\n');
    buildx.write('a/left-out', 'x');
    buildx.write('a/kept/file', 'kept');
    const args = ['build', '-t', 'app:1', '-t', 'other', '--build-arg', 'WHO=you', '--label', 'l=v'];
    const files = ['--iidfile', '../iid', '--metadata-file', '../metadata.json'];
    const since = (Date.now() / 1000).toFixed(3);
    const first = await buildx.ok([...args, ...files, '.'], { in: 'a' });
    const until = (Date.now() / 1000 + 0.001).toFixed(3);
    const told = await call(engine.socketPath, 'GET', `/events?since=${since}&until=${until}`);
    for (const name of ['app:1', 'other']) assert.match(told.text, new RegExp(`"Action":"tag"[^\\n]*"name":"${name}"`));
    assert.match(first.stderr, /RUN echo/);
    assert.match(first.stderr, /kept/);
    // Messages that only describe files count as well, so that the numbers are those of dockerd.
    for (const bytes of ['60B', '126B'])
      assert.match(first.stderr, new RegExp(`^#\\d+ transferring context: ${bytes} .*done$`, 'm'));
    const iid = readFileSync(join(buildx.directory, 'iid'), 'utf8');
    const metadata = JSON.parse(readFileSync(join(buildx.directory, 'metadata.json'), 'utf8')) as Record<
      string,
      string
    >;
    assert.equal(metadata['containerimage.digest'], iid);
    assert.equal(metadata['image.name'], 'docker.io/library/app:1,docker.io/library/other');
    const shown = await callJson<{ Id: string; RepoTags: string[]; Config: { Labels: Record<string, string> } }>(
      engine.socketPath,
      'GET',
      '/images/app:1/json',
    );
    assert.equal(shown.Id, iid);
    assert.deepEqual(shown.RepoTags.toSorted(), ['app:1', 'other:latest']);
    assert.equal(shown.Config.Labels['l'], 'v');
    assert.equal(await engineOk(engine, ['run', '--rm', 'app:1']), 'hello you');
    assert.deepEqual(await namesIn(engine, 'app:1', '/app'), [
      'app/',
      'app/.dockerignore',
      'app/kept/',
      'app/kept/file',
    ]);

    const second = await plugin.ok([...args, '-q', '.'], { in: 'a' });
    assert.equal(second.stdout.trim(), iid);
    const third = await buildx.ok([...args, '.'], { in: 'a' });
    assert.match(third.stderr, /CACHED/);
  });

  test('shows the lines that are wrong, and what a failed command said', async () => {
    buildx.write('b/Dockerfile', `FROM ${image}\nRUNN true\n`);
    const unknown = await plugin.run(['build', '.'], { in: 'b' });
    assert.equal(unknown.status, 1);
    assert.match(unknown.stderr, /dockerfile parse error on line 2: unknown instruction: RUNN \(did you mean RUN\?\)/);
    assert.match(unknown.stderr, /2 \| >>> RUNN true/);
    const cycle = 'FROM scratch AS a\nCOPY --from=b /x /\nFROM scratch AS b\nCOPY --from=a /x /\n';
    const circular = await plugin.run(['build', '-'], { input: cycle });
    assert.match(circular.stderr, /circular dependency detected on stage: a$/m);
    for (const place of ['2 | >>> COPY --from=b', '4 | >>> COPY --from=a']) assert.ok(circular.stderr.includes(place));
    const misspelt = `ARG BASE=no.example/none\nFROM --platform=linux/s390x $BASES\${BASE}\n`;
    const unresolved = await plugin.run(['build', '--progress=plain', '-'], { input: misspelt });
    assert.equal(unresolved.status, 1);
    assert.match(
      unresolved.stderr,
      /UndefinedArgInFrom: FROM argument 'BASES' is not declared \(did you mean BASE\?\)/,
    );
    assert.match(unresolved.stderr, /FromPlatformFlagConstDisallowed: .* "linux\/s390x" \(line 2\)/);
    const nameless = await plugin.run(['build', '--progress=plain', '-'], { input: 'ARG X\nFROM $X\n' });
    assert.match(nameless.stderr, /InvalidDefaultArgInFrom: [^]*base name \(\$X\) should not be blank/);
    const failed = await plugin.run(['build', '-'], { input: `FROM ${image}\nRUN echo said so >&2; exit 7\n` });
    assert.equal(failed.status, 1);
    assert.match(failed.stderr, /said so/);
    assert.match(failed.stderr, /7$/m);
    const absent = await plugin.run(['build', '-f', 'nothing', '.'], { in: 'b' });
    assert.match(absent.stderr, /failed to read dockerfile: open nothing: no such file or directory/);
    mkdirSync(join(buildx.directory, 'b/place'));
    symlinkSync('itself', join(buildx.directory, 'b/itself'));
    for (const [name, words] of [
      ['place', 'read place: is a directory'],
      ['itself', 'too many links'],
    ] as const)
      assert.match(
        (await plugin.run(['build', '-f', name, '.'], { in: 'b' })).stderr,
        new RegExp(`dockerfile: ${words}$`, 'm'),
      );
    const entitled = await plugin.run(['build', '--allow', 'security.insecure', '.'], { in: 'b' });
    assert.match(entitled.stderr, /granting entitlement security\.insecure is not allowed/);
  });

  test('has the syntax of docker/dockerfile and of its mirrors, and no other', async () => {
    const labs = (syntax: string): string => `${syntax}\nFROM scratch\nCOPY --parents a/b /\n`;
    buildx.write('s/a/b', 'b');
    const build = (dockerfile: string, ...args: string[]): Promise<BuildxResult> =>
      plugin.run(['build', '--progress=plain', '-f', '-', ...args, '.'], { in: 's', input: dockerfile });
    for (const syntax of [
      '# syntax=docker/dockerfile:1-labs',
      '#syntax=docker.io/docker/dockerfile-upstream:master',
      '#!/usr/bin/env docker\n# syntax = mirror.example:5000/hub/docker/dockerfile:1.20',
      `# syntax=mirror.example/oss/moby/dockerfile@sha256:${'0'.repeat(64)}`,
    ]) {
      const { status, stderr } = await build(labs(syntax));
      assert.equal(status, 0, stderr);
    }
    const old = await build(labs('# syntax=mirror.example/docker/dockerfile:1.4'));
    assert.match(old.stderr, /unknown flag: --parents/);
    const argument = ['--build-arg', 'BUILDKIT_SYNTAX=mirror.example/docker/dockerfile:1-labs'];
    assert.equal((await build(labs('# syntax=example/other:1'), ...argument)).status, 0, 'the argument goes first');
    const refused = /failed to solve: the frontend example\/other:1 is not available: [^]*docker\/dockerfile/;
    for (const syntax of ['# syntax=example/other:1', '//syntax=example/other:1 --more', '# SYNTAX = example/other:1'])
      for (const args of [[], ['--check'], ['--call=targets']]) {
        const { status, stderr } = await build(`${syntax}\nFROM scratch\n`, ...args);
        assert.equal(status, 1);
        assert.match(stderr, refused);
        assert.ok(stderr.includes(`1 | >>> ${syntax}`), stderr);
      }
    for (const [dockerfile, ...args] of [
      ['{"syntax": "example/other:1"}'],
      ['FROM scratch\n', '--build-arg', 'BUILDKIT_SYNTAX=example/other:1'],
    ] as const)
      assert.match((await build(dockerfile, ...args)).stderr, refused);
    const nameless = await build('# syntax= \nFROM scratch\n');
    assert.match(nameless.stderr, /invalid context name : invalid reference format/);
    const ordered = (args: object): Promise<{ readonly text: string }> =>
      call(engine.socketPath, 'POST', `/build?version=2&buildargs=${encodeURIComponent(JSON.stringify(args))}`, {
        headers: { 'Content-Type': 'application/x-tar' },
        body: Buffer.from('# syntax=example/other:1\nFROM scratch\nLABEL a=b\n'),
      });
    assert.match((await ordered({})).text, /"error":"the frontend example\/other:1 is not available/);
    assert.match(
      (await ordered({ BUILDKIT_SYNTAX: 'example/third' })).text,
      /"error":"failed with build-arg:BUILDKIT_SYNTAX = example\/third: the frontend example\/third is not available/,
    );
    assert.doesNotMatch((await ordered({ BUILDKIT_SYNTAX: 'docker/dockerfile' })).text, /error/);
  });

  test('COPY --parents keeps directories, those after /./ only, and finds files at any depth', async () => {
    for (const path of ['a/p.json', 'a/b/c/p.json', 'a/b/q.json', 'p.json', 'left/p.json', 'z/p.json'])
      buildx.write(`m/${path}`, path);
    buildx.write('m/.dockerignore', 'left\n');
    symlinkSync('a', join(buildx.directory, 'm/link'));
    const kept = async (...sources: readonly string[]): Promise<string[]> => {
      const input = `# syntax=docker/dockerfile:1\nFROM ${image}\nCOPY --parents ${sources.join(' ')} /x/\n`;
      await plugin.ok(['build', '-t', 'kept', '-f', '-', '.'], { in: 'm', input });
      return (await namesIn(engine, 'kept', '/x')).filter((name) => !name.endsWith('/')).map((name) => name.slice(2));
    };
    assert.deepEqual(await kept('a/b/q.json', 'p.json'), ['a/b/q.json', 'p.json']);
    const everywhere = ['a/b/c/p.json', 'a/p.json', 'p.json', 'z/p.json'];
    assert.deepEqual(await kept('**/p.json'), everywhere);
    assert.deepEqual(await kept('./a/**/*.json'), ['a/b/c/p.json', 'a/b/q.json', 'a/p.json']);
    assert.deepEqual(await kept('a/**'), ['a/b/c/p.json', 'a/b/q.json', 'a/p.json']);
    assert.deepEqual(await kept('./a/./b/q.json'), ['b/q.json']);
    assert.deepEqual(await kept('a/./**/p.json', 'z/./p.json'), ['b/c/p.json', 'p.json']);
    assert.deepEqual(await kept('a/./'), ['b/c/p.json', 'b/q.json', 'p.json']);
    // The same content in another place is another step.
    rmSync(join(buildx.directory, 'm/z'), { recursive: true });
    buildx.write('m/y/p.json', 'z/p.json');
    assert.deepEqual(await kept('**/p.json'), ['a/b/c/p.json', 'a/p.json', 'p.json', 'y/p.json']);
  });

  test('COPY --parents makes the directories on the way as they are in the source', async () => {
    const dockerfile = (mode: string): string =>
      `# syntax=docker/dockerfile:1\nFROM ${image} AS s\n` +
      `RUN mkdir -p /a/b && echo c > /a/b/c && chown 3:4 /a && chmod ${mode} /a\n` +
      'RUN chown 5:6 /a/b && chmod 2770 /a/b\n' +
      `FROM ${image}\nRUN mkdir -p /there/a && chown 9:9 /there/a\nCOPY --parents --from=s /a/b/c /x/\n` +
      'COPY --parents --from=s --chown=7:8 /a/b/c /y/\nCOPY --parents --from=s --chmod=640 /a/./b/c /z/\n' +
      'COPY --parents --from=s /a/b/c /there/\nRUN stat -c "%n %a %u:%g" $(find /x/* /y /z /there/*) > /facts\n';
    const built = async (mode: string): Promise<string[]> => {
      await plugin.ok(['build', '-t', 'between', '-f', '-', '.'], { in: 'm', input: dockerfile(mode) });
      return (await fileOf(engine, 'between', '/facts'))
        .trim()
        .split('\n')
        .toSorted((a, b) => (a < b ? -1 : 1));
    };
    const expected = [
      '/there/a 701 9:9',
      '/there/a/b 2770 5:6',
      '/there/a/b/c 644 0:0',
      '/x/a 701 3:4',
      '/x/a/b 2770 5:6',
      '/x/a/b/c 644 0:0',
      '/y 755 7:8',
      '/y/a 701 7:8',
      '/y/a/b 2770 7:8',
      '/y/a/b/c 644 7:8',
      '/z 640 0:0',
      '/z/b 640 5:6',
      '/z/b/c 640 0:0',
    ];
    assert.deepEqual(await built('701'), expected);
    // Their looks decide about the cache, too.
    const other = await built('755');
    assert.deepEqual(
      other,
      expected.map((line) => line.replace('/a 701', '/a 755')),
    );
  });

  test('takes the context from a tar, and tells of builds that have ended', async () => {
    buildx.write('c/Dockerfile', `FROM ${image}\nCOPY x /x\n`);
    buildx.write('c/x', 'from a tar');
    const tar = execFileSync('tar', ['-C', join(buildx.directory, 'c'), '-cz', '.']);
    await plugin.ok(['build', '-t', 'tarred', '-'], { input: tar });
    assert.equal(await fileOf(engine, 'tarred', '/x'), 'from a tar');
    const listed = await plugin.ok(['buildx', 'history', 'ls', '--format', '{{.Ref}} {{.Status}}']);
    const [line = ''] = listed.stdout.split('\n');
    const ref = line.split(' ')[0]?.split('/').at(-1) ?? '';
    assert.match(line, /Completed/);
    assert.match((await plugin.ok(['buildx', 'history', 'logs', ref])).stderr, /COPY x \/x/);
    await plugin.ok(['buildx', 'history', 'rm', ref]);
    // A second time is no mistake.
    await plugin.ok(['buildx', 'history', 'rm', ref]);
    assert.doesNotMatch((await plugin.ok(['buildx', 'history', 'ls'])).stdout, new RegExp(ref));
  });

  test('is listed, inspected, measured and pruned', async () => {
    assert.match((await plugin.ok(['buildx', 'inspect'])).stdout, /Platforms:\s+linux\//);
    assert.match((await buildx.ok(['buildx', 'du', '--verbose'])).stdout, /local source for context/);
    await buildx.ok(['builder', 'prune', '-af']);
    assert.match((await plugin.ok(['buildx', 'du'])).stdout, /Total:\s+0B/);
  });

  test('compose builds its services', async () => {
    buildx.write('d/Dockerfile', `FROM ${image}\nCOPY f /f\n`);
    buildx.write('d/f', 'composed');
    buildx.write(
      'd/compose.yaml',
      'name: shop\nservices: {one: {build: .}, two: {build: {context: ., labels: [a=b]}}}\n',
    );
    await buildx.ok(['compose', 'build'], { in: 'd' });
    assert.equal(await fileOf(engine, 'shop-two', '/f'), 'composed');
  });

  test('compose watches files: what it copies, what it restarts for, and what it builds again', async () => {
    buildx.write('w/Dockerfile', `FROM ${image}\nCOPY built /built\n`);
    buildx.write('w/built', 'old');
    buildx.write('w/live/f', 'old');
    buildx.write('w/settings/f', 'old');
    buildx.write(
      'w/compose.yaml',
      `name: watched
services:
  web:
    build: {context: .}
    command: sleep 1000
    stop_grace_period: 0s
    develop:
      watch:
        - {action: sync, path: live, target: /live}
        - {action: sync+restart, path: settings, target: /settings}
        - {action: rebuild, path: built}
`,
    );
    const watch = buildx.start(['compose', 'up', '--build', '--watch'], { in: 'w' });
    const inside = async (path: string): Promise<string> => (await attempt(engine, ['exec', name, 'cat', path])).stdout;
    const name = 'watched-web-1';
    const startedAt = (): Promise<string> => engineOk(engine, ['inspect', '-f', '{{.State.StartedAt}}', name]);
    try {
      await watch.said(/Watch enabled/);
      const first = await startedAt();
      buildx.write('w/settings/f', 'copied');
      // A watch that took the restart for the end of its only service would end, too, and copy nothing afterwards.
      await waitFor('the restart', async () => (await startedAt()) !== first);
      // The client may copy and restart once more.
      await waitFor('what was copied before it', async () => (await inside('/settings/f')) === 'copied');
      buildx.write('w/live/f', 'copied');
      await waitFor('the copy', async () => (await inside('/live/f')) === 'copied');
      buildx.write('w/built', 'new');
      await waitFor('the build', async () => (await inside('/built')) === 'new');
    } finally {
      watch.kill('SIGINT');
      await watch.ended;
      await buildx.ok(['compose', 'down', '-t', '0', '--rmi', 'local'], { in: 'w' });
    }
  });

  test('a client that gives up ends its build', async () => {
    buildx.write('e/Dockerfile', `FROM ${image}\nRUN echo started; sleep 1000\n`);
    const session = buildx.start(['build', '.'], { in: 'e' });
    await session.said(/started/);
    session.kill('SIGINT');
    const { status, stderr } = await session.ended;
    assert.equal(status, 130);
    assert.match(stderr, /^#\d+ CANCELED$/m);
    await waitFor('it to end', async () => {
      const listed = await plugin.ok(['buildx', 'history', 'ls', '--format', '{{.Status}}']);
      return !listed.stdout.includes('Running');
    });
  });

  test('nothing of a build stays but its image and its record', () => {
    assert.equal(existsSync(join(engine.dir, 'exec', 'agents')), false);
  });
});
