/** `docker build --call` and `--check`: the answers are those of dockerd 28.5.2, and buildx shows them. */
import assert from 'node:assert/strict';
import { readFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it, test } from 'node:test';
import { factsOfImage, type LookUpImage } from '../../src/build/dockerfile/check-images.js';
import { readAttrs } from '../../src/http/buildkit/frontend-attrs.js';
import { answer } from '../../src/http/buildkit/subrequests.js';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

interface Recorded {
  readonly dockerfile: string;
  readonly request: string;
  readonly attrs: Readonly<Record<string, string>>;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly error?: string;
}

const RECORDED = new URL('../../../test/build/call-answers.json', import.meta.url);
const HOST = { os: 'linux', architecture: 'amd64' };
const IMAGES = new Map([
  ['base:1', { ...HOST, config: { Env: ['FROM_BASE=b'], Shell: ['/bin/x'], WorkingDir: '/w' } }],
  ['trigger:1', { ...HOST, config: { OnBuild: ['ARG SECRET_KEY', 'COPY x /'] } }],
]);

/** The message of a registry that was not there is not ours to copy. */
function lookUpFor({ metadata, error }: Recorded): LookUpImage {
  return async (source) => {
    const image = source.kind === 'image' ? IMAGES.get(source.written) : undefined;
    if (image !== undefined) return factsOfImage(image);
    const document = JSON.parse(metadata?.['result.json'] ?? '{}') as { buildError?: { message: string } };
    throw new Error(error ?? document.buildError?.message);
  };
}

describe('answers are those of dockerd', () => {
  for (const one of JSON.parse(readFileSync(RECORDED, 'utf8')) as Recorded[]) {
    it(`${one.request} ${JSON.stringify([one.dockerfile, one.attrs])}`, async () => {
      const text = Buffer.from(one.dockerfile);
      const context = { readFile: async () => undefined, tree: () => Promise.reject(new Error('no files are needed')) };
      const dockerfile = { name: 'Dockerfile', text, vertex: '', context };
      const attrs = readAttrs(new Map(Object.entries(one.attrs)));
      const asked = answer({ request: one.request, dockerfile, attrs, host: HOST, lookUp: lookUpFor(one) });
      if (one.error !== undefined) {
        await assert.rejects(asked, { message: one.error });
        return;
      }
      const { metadata } = await asked;
      const given = Object.entries(metadata).map(([key, value]) => [key, Buffer.from(value).toString()]);
      assert.deepEqual(Object.fromEntries(given), one.metadata);
    });
  }
});

describe('buildx', { skip: buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs' }, () => {
  const cleanup = new Cleanup();
  const directory = mkdtempSync(join(tmpdir(), 'calls-'));
  let buildx: Buildx;
  let image: string;

  before(async () => {
    const started = await startEngineWithImage(cleanup);
    image = started.image;
    buildx = new Buildx(join(directory, 'work'), started.engine.host);
  });
  after(async () => {
    rmSync(directory, { recursive: true, force: true });
    await cleanup.run();
  });

  test('shows the steps and warnings of dockerd beside the answers', async () => {
    buildx.write('steps/Dockerfile', `FROM ${image}\nMAINTAINER me\nWORKDIR rel\n`);
    for (const call of ['check', 'outline']) {
      const { stderr } = await buildx.run(['build', `--call=${call}`, '.'], { in: 'steps' });
      assert.match(stderr, /^#\d+ \[internal\] load \.dockerignore\n#\d+ transferring context: 2B/m, call);
      const warned = [...stderr.matchAll(/^#\d+ WARN: (\w+)/gm)].map(([, rule = '']) => rule);
      // The answer of the check has them itself.
      assert.deepEqual(warned.toSorted(), call === 'check' ? [] : ['MaintainerDeprecated', 'WorkdirRelativePath']);
    }
    const unknown = await buildx.run(['build', '--call=nope', '.'], { in: 'steps' });
    assert.match(unknown.stderr, /solve: unsupported request frontend\.nope: unsupported request frontend\.nope$/m);
  });

  test('shows checks, outlines and targets, also of bake, and builds nothing', async () => {
    buildx.write(
      'a/Dockerfile',
      `#check=experimental=all\nFROM ${image} AS tool\n# WHO is greeted\nARG WHO=you\nFROM tool\nCOPY ignored /\n` +
        'CMD echo hello\n',
    );
    buildx.write('a/.dockerignore', 'ignored\n');
    const checked = await buildx.run(['build', '--check', '.'], { in: 'a' });
    assert.equal(checked.status, 1);
    assert.match(checked.stdout, /WARNING: JSONArgsRecommended - https:/);
    assert.match(checked.stdout, /7 \| >>> CMD echo hello/);
    assert.match(checked.stdout, /WARNING: CopyIgnoredFile/);
    const json = await buildx.run(['build', '--call=check,format=json', '.'], { in: 'a' });
    const rules = (JSON.parse(json.stdout) as { warnings: { ruleName: string }[] }).warnings;
    assert.deepEqual(rules.map(({ ruleName }) => ruleName).toSorted(), ['CopyIgnoredFile', 'JSONArgsRecommended']);
    const outline = await buildx.ok(['build', '--call=outline', '.'], { in: 'a' });
    assert.match(outline.stdout, /^WHO +you +is greeted$/m);
    assert.match((await buildx.ok(['build', '--call=targets', '.'], { in: 'a' })).stdout, /^tool +\n\(default\)/m);
    buildx.write('a/docker-bake.hcl', 'target "default" { args = { WHO = "me" } }\n');
    assert.match((await buildx.ok(['buildx', 'bake', '--call=outline'], { in: 'a' })).stdout, /^WHO +me /m);
    const absent = await buildx.run(['build', '--call=targets', '-'], { input: 'FROM scratch\nRUNN x\n' });
    assert.match(absent.stderr, /2 \| >>> RUNN x/);
    const config = (text: string): string[] => ['--build-arg', `BUILDKIT_DOCKERFILE_CHECK=${text}`];
    const strict = await buildx.run(['build', '--check', ...config('error=true'), '-'], {
      input: `FROM ${image}\nWORKDIR a\nMAINTAINER m\nCMD x\n`,
    });
    assert.match(strict.stderr, /for rules: JSONArgsRecommended, MaintainerDeprecated, WorkdirRelativePath$/m);
    const bad = await buildx.run(['build', '--check', ...config('nope'), '.'], { in: 'a' });
    assert.match(bad.stderr, /failed to parse build-arg:BUILDKIT_DOCKERFILE_CHECK: invalid check option "nope"$/m);
    assert.equal((await buildx.ok(['images', '-q'])).stdout.trim().split('\n').length, 1);
  });
});
