/** Builds for several platforms at once, with the unmodified buildx. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ociFiles, type Index, type Manifest } from '../support/oci-archive.js';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson } from '../support/http.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'platforms-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const BOTH = ['--platform', 'linux/amd64,linux/arm64'];
let engine: Engine;
let image: string;
let buildx: Buildx;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  buildx = new Buildx(join(directory, 'work'), engine.host);
  // The first stage runs on this host whatever the image is for, and once for each platform.
  buildx.write(
    'a/Dockerfile',
    `FROM --platform=$BUILDPLATFORM ${image} AS made\nRUN cat /proc/sys/kernel/random/uuid >/common\n` +
      'ARG TARGETARCH TARGETPLATFORM\nRUN echo "$TARGETARCH $TARGETPLATFORM $(uname -m)" >/made\n' +
      'FROM scratch\nCOPY file /file\nCOPY --from=made /made /common /\nARG TARGETARCH\nENV FOR=$TARGETARCH\n',
  );
  buildx.write('a/file', 'of the context\n');
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

describe('builds for several platforms', { skip }, () => {
  test('make an archive with an index; steps that all have in common run once', async () => {
    const { stderr } = await buildx.ok(['build', ...BOTH, '-o', 'type=oci,dest=../both.tar,name=app:1', '.'], {
      in: 'a',
    });
    const files = ociFiles(join(buildx.directory, 'both.tar'));
    const [entry] = (files.json('index.json') as Index).manifests;
    assert.ok(entry);
    assert.equal(entry.mediaType, 'application/vnd.oci.image.index.v1+json');
    assert.equal(entry.annotations?.['io.containerd.image.name'], 'docker.io/library/app:1');
    const { manifests } = files.blob(entry) as Index;
    assert.deepEqual(
      manifests.map(({ platform }) => platform),
      [
        { architecture: 'amd64', os: 'linux' },
        { architecture: 'arm64', os: 'linux' },
      ],
    );
    const configs = manifests.map(
      (one) => files.blob((files.blob(one) as Manifest).config) as { architecture: string; config: { Env: string[] } },
    );
    assert.deepEqual(
      configs.map(({ architecture }) => architecture),
      ['amd64', 'arm64'],
    );
    assert.ok(configs.every(({ architecture, config }) => config.Env.includes(`FOR=${architecture}`)));
    for (const name of [
      '[linux/amd64 made 1/3] FROM',
      '[linux/amd64 made 2/3] RUN cat',
      '[linux/amd64->arm64 made 3/3] RUN echo',
      '[linux/amd64 made 3/3] RUN echo',
      '[linux/amd64 stage-1 1/2] COPY file /file',
      '[linux/arm64 stage-1 2/2] COPY --from=made',
      '[linux/amd64 internal] load metadata for',
    ])
      assert.ok(stderr.includes(name), `${name} in ${stderr}`);
    // A step that does not depend on the platform is one, with the name that came first.
    assert.ok(!stderr.includes('[linux/amd64->arm64 made 2/3]'), stderr);
  });

  test('give the files of each in a directory and in a tar, and one cache for all', async () => {
    await buildx.ok(['build', ...BOTH, '-o', '../tree', '-o', 'type=tar,dest=../tree.tar', '.'], { in: 'a' });
    const tree = join(buildx.directory, 'tree');
    assert.deepEqual(readdirSync(tree).sort(), ['linux_amd64', 'linux_arm64']);
    for (const arch of ['amd64', 'arm64']) {
      const read = (name: string): string => readFileSync(join(tree, `linux_${arch}`, name), 'utf8');
      assert.equal(read('made'), `${arch} linux/${arch} x86_64\n`);
      assert.equal(read('file'), 'of the context\n');
      assert.equal(
        execFileSync('tar', ['-xOf', join(buildx.directory, 'tree.tar'), `linux_${arch}/made`]).toString(),
        read('made'),
      );
    }
    const [amd64, arm64] = ['amd64', 'arm64'].map((arch) => readFileSync(join(tree, `linux_${arch}/common`), 'utf8'));
    assert.equal(amd64, arm64);
    // In one directory the files of one platform would take the place of the other's.
    const order = ['build', ...BOTH, '-o', 'type=local,dest=../merged,platform-split=false', '.'];
    const merged = await buildx.run(order, { in: 'a' });
    assert.notEqual(merged.status, 0);
    assert.match(merged.stderr, /cannot overwrite \w+ from linux\/amd64 with linux\/arm64 when split/);
    // The build of one platform finds the steps of all.
    const { stderr } = await buildx.ok(['build', '--platform', 'linux/arm64', '-o', '../one', '.'], { in: 'a' });
    assert.equal(readFileSync(join(buildx.directory, 'one/common'), 'utf8'), amd64);
    assert.match(stderr, /CACHED/);
  });

  test('are refused where one image is wanted, before anything runs', async () => {
    for (const args of [
      ['-t', 'both:1'],
      ['--load', '-t', 'both:1'],
      ['-o', 'type=docker,dest=../docker.tar'],
    ]) {
      const refused = await buildx.run(['build', ...BOTH, ...args, '.'], { in: 'a' });
      assert.notEqual(refused.status, 0);
      assert.match(refused.stderr, /one platform of an image|exporting manifest lists/);
    }
    const windows = await buildx.run(['build', '--platform', 'linux/arm64,windows', '-o', '../w', '.'], { in: 'a' });
    assert.match(windows.stderr, /for linux, not for/);
    assert.deepEqual(await callJson(engine.socketPath, 'GET', '/images/json?filters={"reference":["both"]}'), []);
  });

  test('fail as a whole when one platform fails, with its step', async () => {
    buildx.write(
      'fails/Dockerfile',
      `FROM --platform=$BUILDPLATFORM ${image} AS made\nARG TARGETARCH\nRUN test "$TARGETARCH" = amd64 && touch /x\n` +
        'FROM scratch\nCOPY --from=made /x /\n',
    );
    const failed = await buildx.run(['build', ...BOTH, '-o', '../failed', '.'], { in: 'fails' });
    assert.notEqual(failed.status, 0);
    assert.match(failed.stderr, /\[linux\/amd64->arm64 made 2\/2\].*RUN test/);
    assert.match(failed.stderr, /exit code: 1/);
    // Both succeed alone and together where nothing fails, and nothing of the failed one is in the way.
    assert.equal((await buildx.run(['build', '-o', '../fine', '.'], { in: 'fails' })).status, 0);
  });

  test('hand their results to linked builds, each platform to its own', async () => {
    buildx.write(
      'linked/base/Dockerfile',
      'FROM scratch\nARG TARGETARCH\nCOPY <<EOF /arch\n$TARGETARCH\nEOF\nENV OF=$TARGETARCH\n',
    );
    buildx.write('linked/app/Dockerfile', 'FROM base\nARG TARGETARCH\nCOPY <<EOF /mine\n$TARGETARCH\nEOF\n');
    buildx.write(
      'linked/docker-bake.json',
      JSON.stringify({
        target: {
          base: { context: 'base', platforms: ['linux/amd64', 'linux/arm64'] },
          app: {
            context: 'app',
            contexts: { base: 'target:base' },
            platforms: ['linux/amd64', 'linux/arm64'],
            output: ['type=local,dest=../linked-out'],
          },
        },
      }),
    );
    await buildx.ok(['buildx', 'bake', '--allow=fs.write=..', 'app'], { in: 'linked' });
    for (const arch of ['amd64', 'arm64']) {
      const read = (name: string): string =>
        readFileSync(join(buildx.directory, 'linked-out', `linux_${arch}`, name), 'utf8');
      assert.equal(read('arch'), `${arch}\n`);
      assert.equal(read('mine'), `${arch}\n`);
    }
  });

  test('write blobs into a directory, which later builds are based on', async () => {
    await buildx.ok(['build', ...BOTH, '-o', 'type=oci,dest=../layout,tar=false,name=kept:1', '.'], { in: 'a' });
    const layout = join(buildx.directory, 'layout');
    const [entry] = (JSON.parse(readFileSync(join(layout, 'index.json'), 'utf8')) as Index).manifests;
    assert.equal(entry?.mediaType, 'application/vnd.oci.image.index.v1+json');
    const blobs = join(layout, 'blobs/sha256');
    for (const name of readdirSync(blobs))
      assert.equal(
        createHash('sha256')
          .update(readFileSync(join(blobs, name)))
          .digest('hex'),
        name,
      );
    buildx.write('based/Dockerfile', 'FROM base\nCOPY --from=base /made /again\nARG TARGETARCH\nENV NOW=$TARGETARCH\n');
    // Nothing is left of it here, so that all comes from the directory.
    await buildx.ok(['builder', 'prune', '-af']);
    const context = ['--build-context', `base=oci-layout://${layout}:1`];
    await buildx.ok(['build', ...BOTH, ...context, '-o', '../based-out', '.'], { in: 'based' });
    for (const arch of ['amd64', 'arm64']) {
      const read = (name: string): string =>
        readFileSync(join(buildx.directory, 'based-out', `linux_${arch}`, name), 'utf8');
      assert.equal(read('again'), `${arch} linux/${arch} x86_64\n`);
      assert.equal(read('file'), 'of the context\n');
    }
    await buildx.ok(['build', ...context, '-t', 'based:1', '.'], { in: 'based' });
    const { Config } = await callJson<{ Config: { Env: string[] } }>(engine.socketPath, 'GET', '/images/based:1/json');
    assert.ok(Config.Env.includes('FOR=amd64') && Config.Env.includes('NOW=amd64'), Config.Env.join());
  });

  test('refuse a directory whose blobs are damaged, missing, or of another platform', async () => {
    buildx.write('one/Dockerfile', 'FROM scratch\nCOPY Dockerfile /one\n');
    await buildx.ok(['build', '-o', 'type=oci,dest=../broken,tar=false,name=one:1', '.'], { in: 'one' });
    await buildx.ok(['builder', 'prune', '-af']);
    const layout = join(buildx.directory, 'broken');
    const read = (digest: string): string => join(layout, 'blobs', digest.replace(':', '/'));
    const [entry] = (JSON.parse(readFileSync(join(layout, 'index.json'), 'utf8')) as Index).manifests;
    const manifest = JSON.parse(readFileSync(read(entry?.digest ?? ''), 'utf8')) as Manifest;
    buildx.write('on/Dockerfile', 'FROM base\nCOPY Dockerfile /two\n');
    const fails = async (text: RegExp, ...args: string[]): Promise<void> => {
      const context = ['--build-context', `base=oci-layout://${layout}:1`];
      const failed = await buildx.run(['build', ...context, ...args, '-t', 'on:1', '.'], { in: 'on' });
      assert.notEqual(failed.status, 0);
      assert.match(failed.stderr, text);
    };
    const [layer] = manifest.layers;
    const whole = readFileSync(read(layer?.digest ?? ''));
    writeFileSync(read(layer?.digest ?? ''), gzipSync('other bytes'));
    await fails(/longer than its manifest says|unexpected|damaged|invalid|does not match|digest|diff/i);
    rmSync(read(layer?.digest ?? ''));
    await fails(/not found/);
    writeFileSync(read(layer?.digest ?? ''), whole);
    const config = readFileSync(read(manifest.config.digest), 'utf8');
    writeFileSync(read(manifest.config.digest), config.replace('"linux"', '"linus"'));
    await fails(/unexpected content of sha256:/);
    writeFileSync(read(manifest.config.digest), config);
    await buildx.ok(['build', '--build-context', `base=oci-layout://${layout}:1`, '-t', 'on:1', '.'], { in: 'on' });
  });
});
