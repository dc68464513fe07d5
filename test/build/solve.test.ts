/** Builds of BuildKit's clients: what runs, when, and what the image says afterwards. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'solve-'));
let engine: Engine;
let image: string;
let buildx: Buildx;
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

before(async () => {
  ({ engine, image } = await startEngineWithRegistry(cleanup));
  buildx = new Buildx(join(directory, 'work'), engine.host);
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

interface HistoryEntry {
  readonly CreatedBy: string;
  readonly Comment: string;
}

async function historyOf(name: string): Promise<HistoryEntry[]> {
  return callJson<HistoryEntry[]>(engine.socketPath, 'GET', `/images/${name}/history`);
}

describe('a build of BuildKit', { skip }, () => {
  test('tells the history in the words of dockerd, and leaves nothing of its steps', async () => {
    buildx.write(
      'words/Dockerfile',
      `FROM ${image}\nARG X=1\nARG Y\nARG Z="quo te" W=2\nENV E1=v1 E2="two words" X=env\nRUN echo hi > /hi\n` +
        'RUN ["/bin/sh", "-c", "echo \\"x y\\" > /h2"]\nWORKDIR /w\nWORKDIR sub\nWORKDIR /\n' +
        'COPY --chown=1:2 --chmod=644 f g* /dst/\nADD f /added\nLABEL a=b "c d"="e f"\nEXPOSE 9 3/tcp 81/udp\n' +
        'VOLUME /v1 /v2\nUSER nobody\nSTOPSIGNAL SIGTERM\nSHELL ["/bin/sh", "-e", "-c"]\n' +
        'HEALTHCHECK --interval=1m30s --retries=10 CMD true\nONBUILD RUN echo onbuild\nCMD echo "hi there"\n' +
        'ENTRYPOINT ["/bin/e p", "a\\"b"]\nMAINTAINER me\nRUN <<EOF\necho heredoc\nEOF\nCOPY <<EOT /inline\nx\nEOT\n',
    );
    buildx.write('words/f', 'f');
    buildx.write('words/g1', 'g');
    await buildx.ok(['build', '-t', 'words', '--build-arg', 'Y=yy', '--build-arg', 'HTTP_PROXY=http://p', '.'], {
      in: 'words',
    });
    const entries = (await historyOf('words')).filter(({ Comment }) => Comment === 'buildkit.dockerfile.v0');
    const run = 'RUN |4 X=env Y=yy Z=quo te W=2';
    assert.deepEqual(entries.map(({ CreatedBy }) => CreatedBy).toReversed(), [
      'ARG X=1',
      'ARG Y=yy',
      'ARG Z=quo te W=2',
      'ENV E1=v1 E2=two words X=env',
      `${run} /bin/sh -c echo hi > /hi # buildkit`,
      `${run} /bin/sh -c echo "x y" > /h2 # buildkit`,
      'WORKDIR /w',
      'WORKDIR /w/sub',
      'WORKDIR /',
      'COPY --chown=1:2 --chmod=644 f g* /dst/ # buildkit',
      'ADD f /added # buildkit',
      'LABEL a=b c d=e f',
      'EXPOSE [3/tcp 81/udp 9/tcp]',
      'VOLUME [/v1 /v2]',
      'USER nobody',
      'STOPSIGNAL SIGTERM',
      'SHELL [/bin/sh -e -c]',
      `HEALTHCHECK &{["CMD-SHELL" "true"] "1m30s" "0s" "0s" "0s" '\\n'}`,
      'CMD ["/bin/sh" "-e" "-c" "echo \\"hi there\\""]',
      'ENTRYPOINT ["/bin/e p" "a\\"b"]',
      'MAINTAINER me',
      `${run} /bin/sh -e -c echo heredoc\n # buildkit`,
      'COPY <<EOT /inline # buildkit',
    ]);
    const [images, containers] = await Promise.all([
      callJson<{ RepoTags: string[] }[]>(engine.socketPath, 'GET', '/images/json?all=1'),
      callJson<unknown[]>(engine.socketPath, 'GET', '/containers/json?all=1'),
    ]);
    assert.equal(images.length, 2, 'no step leaves an image');
    assert.deepEqual(containers, []);
  });

  test('gives the image the configuration of dockerd', async () => {
    const shown = await callJson<Record<string, unknown> & { Config: object }>(
      engine.socketPath,
      'GET',
      '/images/words/json',
    );
    assert.deepEqual(
      { ...shown.Config, Parent: shown['Parent'], Comment: shown['Comment'], Author: shown['Author'] },
      {
        User: 'nobody',
        ExposedPorts: { '3/tcp': {}, '81/udp': {}, '9/tcp': {} },
        Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'E1=v1', 'E2=two words', 'X=env'],
        Entrypoint: ['/bin/e p', 'a"b'],
        Cmd: ['/bin/sh', '-e', '-c', 'echo "hi there"'],
        Volumes: { '/v1': {}, '/v2': {} },
        WorkingDir: '/',
        Labels: { a: 'b', 'c d': 'e f', flavour: 'plain' },
        StopSignal: 'SIGTERM',
        ArgsEscaped: true,
        Healthcheck: { Test: ['CMD-SHELL', 'true'], Interval: 90e9, Retries: 10 },
        OnBuild: ['RUN echo onbuild'],
        Shell: ['/bin/sh', '-e', '-c'],
        Parent: '',
        Comment: 'buildkit.dockerfile.v0',
        Author: 'me',
      },
    );
  });

  test('runs stages at the same time, once each, and only those that are needed', async () => {
    // Each side ends only when it has heard of the other, over the host's network.
    buildx.write(
      'parallel/Dockerfile',
      `FROM ${image} AS a\nRUN --network=host nc -l -p 39471 -e true; echo a > /out\n` +
        `FROM ${image} AS b\nRUN --network=host until nc 127.0.0.1 39471 < /dev/null; do :; done; echo b > /out\n` +
        `FROM ${image} AS unneeded\nRUN exit 1\n` +
        'FROM scratch\nCOPY --from=a /out /a\nCOPY --from=b /out /b\nCOPY --from=1 /out /c\n',
    );
    const built = await buildx.ok(['build', '-o', 'out', '--network', 'host', '.'], { in: 'parallel' });
    assert.doesNotMatch(built.stderr, /unneeded/);
  });

  test('names steps as dockerd does', async () => {
    const steps = async (input: string, ...args: readonly string[]): Promise<string[]> => {
      const { stderr } = await buildx.ok(['build', ...args, '-'], { input });
      return [...stderr.matchAll(/^#\d+ (\[(?!internal).*|preparing layers .*)$/gm)].map(([, name = '']) => name);
    };
    const from = `FROM ${image} AS`;
    const cache = ['--cache-to', 'type=inline', '-t', 'names'];
    assert.deepEqual(await steps(`${from} only\nRUN true\n`, ...cache), [
      `[1/2] FROM ${image}`,
      '[2/2] RUN true',
      'preparing layers for inline cache done',
    ]);
    const two = await steps(`${from} a\nRUN echo > /f\n${from} b\nCOPY --from=a /f /\n`);
    assert.deepEqual(two, [`[a 1/2] FROM ${image}`, '[a 2/2] RUN echo > /f', '[b 2/2] COPY --from=a /f /']);
    const failed = await buildx.run(['build', '--target', 'none', '-'], { input: `${from} a\n` });
    assert.doesNotMatch(failed.stderr, /load \.dockerignore/, 'the build has not begun');
    const context = ['--build-context', `ctx=docker-image://${image}`];
    const ofContext = await steps('FROM ctx\nRUN echo 1\nFROM scratch\nCOPY --from=ctx /etc/group /\n', ...context);
    assert.deepEqual(ofContext, [
      `[context ctx] load metadata for ${image}`,
      `[context ctx] ${image}`,
      '[stage-1 1/1] COPY --from=ctx /etc/group /',
    ]);
    assert.deepEqual((await steps('FROM ctx\nRUN echo 2\n', ...context)).slice(2), ['[1/2] RUN echo 2']);
  });

  test('takes steps from the cache whose inputs are the same, whatever their times', async () => {
    buildx.write('cached/Dockerfile', `FROM ${image}\nARG SEED\nCOPY f /f\nRUN echo ran\nCOPY g /g\nRUN echo again\n`);
    buildx.write('cached/f', 'f');
    buildx.write('cached/g', 'g');
    await buildx.ok(['build', '-t', 'cached', '.'], { in: 'cached' });
    utimesSync(join(buildx.directory, 'cached/f'), 1, 1);
    const touched = await buildx.ok(['build', '.'], { in: 'cached' });
    assert.equal(touched.stderr.match(/CACHED/g)?.length, 4, touched.stderr);
    assert.match(touched.stderr, /FROM .*\n#\d+ DONE/, 'no step began with the image');
    buildx.write('cached/g', 'changed');
    const changed = await buildx.ok(['build', '.'], { in: 'cached' });
    assert.equal(changed.stderr.match(/CACHED/g)?.length, 2, changed.stderr);
    assert.doesNotMatch(changed.stderr, /^#\d+ [\d.]+ ran$/m);
    assert.match(changed.stderr, /^#\d+ [\d.]+ again$/m);
    const argued = await buildx.ok(['build', '--build-arg', 'SEED=1', '.'], { in: 'cached' });
    assert.match(argued.stderr, /^#\d+ [\d.]+ ran$/m);
    const proxied = await buildx.ok(['build', '--build-arg', 'https_proxy=x', '.'], { in: 'cached' });
    assert.doesNotMatch(proxied.stderr, /^#\d+ [\d.]+ ran$/m);
    const fresh = await buildx.ok(['build', '--no-cache', '.'], { in: 'cached' });
    assert.match(fresh.stderr, /^#\d+ [\d.]+ ran$/m);
    assert.match(fresh.stderr, /FROM .*\n#\d+ CACHED/);
    const nothingElse = await buildx.ok(['build', '-'], { input: `FROM ${image}\n` });
    assert.match(nothingElse.stderr, /FROM .*\n#\d+ CACHED/);
  });

  test('runs a command again in other surroundings, but for the address of a host', async () => {
    const input = `FROM ${image}\nRUN echo around\n`;
    const isCached = async (...args: readonly string[]): Promise<boolean> =>
      /RUN echo around\n#\d+ CACHED$/m.test((await buildx.ok(['build', ...args, '-'], { input })).stderr);
    const settings = [
      [],
      ['--add-host', 'a:1.2.3.4'],
      ['--add-host', 'b:1.2.3.4'],
      ['--ulimit', 'nofile=70:80'],
      ['--shm-size', '3m'],
    ];
    for (const one of settings) assert.equal(await isCached(...one), false, one.join(' '));
    for (const one of settings) assert.equal(await isCached(...one), true, one.join(' '));
    assert.equal(await isCached('--add-host', 'a:1.2.3.5'), true);
  });

  test('says which command failed and where, and leaves nothing of it', async () => {
    // The other stage would run for long: the failure ends it.
    const dockerfile =
      `FROM ${image} AS other\nRUN sleep 1000\nFROM ${image}\nRUN echo said so; exit 7\n` +
      'COPY --from=other / /other\n';
    const failed = await buildx.run(['build', '-'], { input: dockerfile });
    assert.equal(failed.status, 1);
    assert.match(failed.stderr, /\[stage-1 2\/3\] RUN echo said so; exit 7:\n[\d.]+ said so/);
    assert.match(failed.stderr, /4 \| >>> RUN echo said so; exit 7/);
    const words = 'process "/bin/sh -c echo said so; exit 7" did not complete successfully: exit code: 7';
    assert.ok(failed.stderr.includes(`failed to solve: ${words}\n`), failed.stderr);
    buildx.write('missing/Dockerfile', `FROM ${image}\nCOPY nope /x\n`);
    const missing = await buildx.run(['build', '.'], { in: 'missing' });
    assert.match(missing.stderr, /ERROR: failed to calculate checksum of ref \S+: "\/nope": not found/);
    assert.match(
      missing.stderr,
      /failed to solve: failed to compute cache key: failed to calculate checksum of ref \S+: "\/nope": not found/,
    );
  });

  test('gives the files of a result to the client', async () => {
    buildx.write('files/Dockerfile', `FROM scratch\nCOPY f /d/f\n`);
    buildx.write('files/f', 'in a file');
    await buildx.ok(['build', '-o', '../out', '.'], { in: 'files' });
    const packed = await buildx.ok(['build', '-o', 'type=tar,dest=../out.tar', '.'], { in: 'files' });
    assert.match(packed.stderr, /exporting to client tarball/);
    const tar = `FROM ${image}\nCOPY out/d/f /f\nADD out.tar /t/\nRUN cat /f /t/d/f\n`;
    buildx.write('Dockerfile', tar);
    const used = await buildx.ok(['build', '.']);
    assert.match(used.stderr, /in a filein a file/);
  });

  test('takes stages and files from contexts with names', async () => {
    buildx.write('named/Dockerfile', `FROM base AS b\nFROM ${image}\nCOPY --from=b /x /b\nRUN cat /b\n`);
    buildx.write('named/other/x', 'of a directory');
    const tree = await buildx.ok(['build', '--build-context', 'base=other', '.'], { in: 'named' });
    assert.match(tree.stderr, / of a directory/);
    assert.match(tree.stderr, /^#\d+ transferring base: \d+B .*done$/m);
    // A stage of the Dockerfile makes way for a context with its name.
    buildx.write('named/D2', `FROM scratch AS b\nRUN exit 1\nFROM ${image}\nCOPY --from=b /bin/busybox /b\n`);
    await buildx.ok(['build', '--build-context', `b=docker-image://${image}`, '-f', 'D2', '.'], { in: 'named' });
  });

  test('links targets of a bake', async () => {
    buildx.write('bake/one/Dockerfile', `FROM ${image}\nENV FROM_ONE=yes\nRUN echo of one > /one\n`);
    buildx.write('bake/two/Dockerfile', 'FROM one\nRUN echo $FROM_ONE $(cat /one)\n');
    buildx.write(
      'bake/docker-bake.json',
      JSON.stringify({
        group: { default: { targets: ['two'] } },
        target: { one: { context: 'one' }, two: { context: 'two', contexts: { one: 'target:one' }, tags: ['baked'] } },
      }),
    );
    const baked = await buildx.ok(['buildx', 'bake'], { in: 'bake' });
    assert.match(baked.stderr, / yes of one$/m);
    assert.deepEqual(
      (await historyOf('baked')).slice(0, 3).map(({ CreatedBy }) => CreatedBy),
      [
        'RUN /bin/sh -c echo $FROM_ONE $(cat /one) # buildkit',
        'RUN /bin/sh -c echo of one > /one # buildkit',
        'ENV FROM_ONE=yes',
      ],
    );
  });

  test('pulls an image that is not here, and says which one', async () => {
    await buildx.ok(['builder', 'prune', '-af']);
    await buildx.ok(['system', 'prune', '-af']);
    const input = `FROM ${image}\nRUN echo pulled\n`;
    const { stderr } = await buildx.ok(['build', '-'], { input });
    assert.match(stderr, new RegExp(`\\[1/2\\] FROM ${image}@sha256:[0-9a-f]{64}`));
    assert.match(stderr, /^#\d+ [\d.]+ pulled$/m);
    const words = `${image}nope: failed to resolve source metadata for ${image}nope: ${image}nope: not found\n`;
    for (const args of [[], ['--check']]) {
      const absent = await buildx.run(['build', '--progress=plain', ...args, '-'], { input: `FROM ${image}nope\n` });
      assert.ok(absent.stderr.includes(words), absent.stderr);
      assert.match(absent.stderr, new RegExp(`^#\\d+ ERROR: ${image}nope: not found$`, 'm'));
      assert.match(absent.stdout + absent.stderr, /1 \| >>> FROM/);
    }
  });

  test('a client that gives up ends what runs in each stage', async () => {
    buildx.write(
      'given-up/Dockerfile',
      `FROM ${image} AS a\nRUN echo one; sleep 1000\nFROM ${image} AS b\nRUN echo two; sleep 1000\n` +
        'FROM scratch\nCOPY --from=a / /\nCOPY --from=b / /\n',
    );
    // Plain progress shows one step at a time.
    const session = buildx.start(['build', '--progress', 'rawjson', '.'], { in: 'given-up' });
    for (const word of ['one', 'two']) await session.said(new RegExp(Buffer.from(`${word}\n`).toString('base64')));
    session.kill('SIGINT');
    const { status, stderr } = await session.ended;
    assert.equal(status, 130);
    assert.match(stderr, /ERROR: failed to build: failed to solve: Canceled: context canceled$/m);
    await waitFor('its builds to end', async () => {
      const listed = await buildx.ok(['buildx', 'history', 'ls', '--format', '{{.Status}}']);
      return !listed.stdout.includes('Running');
    });
    assert.equal(await engineOk(engine, ['run', '--rm', image, 'echo', 'still here']), 'still here');
  });
});
