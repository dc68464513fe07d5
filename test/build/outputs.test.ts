/** Results of builds in all their forms, with the unmodified buildx: images, archives, files, pushes, warnings. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync, statSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { type Reply, call, callJson } from '../support/http.js';
import { fileOf } from '../support/image-files.js';
import { type Descriptor, type Index, type Manifest, ociFiles } from '../support/oci-archive.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'outputs-'));
let engine: Engine;
let image: string;
let registry: TestRegistry;
let buildx: Buildx;
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const EPOCH = '1700000000';
const CREATED = '2023-11-14T22:13:20Z';
const OCI = 'application/vnd.oci.image';
const DOCKER = 'application/vnd.docker';

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  buildx = new Buildx(join(directory, 'work'), engine.host);
  buildx.write('a/Dockerfile', 'FROM scratch\nCOPY f /dir/f\nCOPY g /g\nENV X=1\nCMD ["x"]\n');
  buildx.write('a/f', 'file f');
  buildx.write('a/g', 'file g');
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

/** Builds `a` with an output and a file of metadata. Returns the metadata. */
async function build(output: string, args: readonly string[] = []): Promise<Record<string, unknown>> {
  const files = ['--metadata-file', '../metadata.json'];
  await buildx.ok(['build', ...files, '-o', output, ...args, '.'], { in: 'a', env: { SOURCE_DATE_EPOCH: EPOCH } });
  return JSON.parse(readFileSync(join(buildx.directory, 'metadata.json'), 'utf8')) as Record<string, unknown>;
}

describe('docker build', { skip }, () => {
  test('writes an archive in the layout of OCI, as dockerd does', async () => {
    const metadata = await build('type=oci,dest=../oci.tar,name=app:1');
    const files = ociFiles(join(buildx.directory, 'oci.tar'));
    const [entry, ...others] = (files.json('index.json') as Index).manifests;
    assert.ok(entry);
    assert.deepEqual(others, []);
    assert.deepEqual(entry.annotations, {
      'io.containerd.image.name': 'docker.io/library/app:1',
      'org.opencontainers.image.created': CREATED,
      'org.opencontainers.image.ref.name': '1',
    });
    assert.deepEqual(entry.platform, { architecture: 'amd64', os: 'linux' });
    const manifest = files.blob(entry) as Manifest;
    assert.equal(entry.mediaType, `${OCI}.manifest.v1+json`);
    assert.deepEqual(
      manifest.layers.map(({ mediaType }) => mediaType),
      [`${OCI}.layer.v1.tar+gzip`, `${OCI}.layer.v1.tar+gzip`],
    );
    const config = files.blob(manifest.config) as { created: string; config: { Env: string[] } };
    assert.equal(config.created, CREATED);
    assert.deepEqual(files.json('oci-layout'), { imageLayoutVersion: '1.0.0' });
    assert.equal(files.names.includes('manifest.json'), false);
    assert.equal(metadata['containerimage.digest'], entry.digest);
    assert.equal(metadata['containerimage.config.digest'], manifest.config.digest);
    assert.equal(metadata['image.name'], 'docker.io/library/app:1');
    const { mediaType, digest, size, platform } = entry;
    const annotations = { 'org.opencontainers.image.created': CREATED };
    assert.deepEqual(metadata['containerimage.descriptor'], { mediaType, digest, size, annotations, platform });
    const [first = ''] = execFileSync('tar', ['-tvf', join(buildx.directory, 'oci.tar')])
      .toString()
      .split('\n');
    assert.match(first, /^drwxr-xr-x 0\/0 .* blobs\/$/);
  });

  test('writes an archive that any engine loads', async () => {
    await build('type=docker,dest=../docker.tar,"name=loaded:1,loaded-too"');
    const files = ociFiles(join(buildx.directory, 'docker.tar'));
    const [{ Config, RepoTags, Layers } = { Config: '', RepoTags: [], Layers: [] }] = files.json('manifest.json') as {
      Config: string;
      RepoTags: string[];
      Layers: string[];
    }[];
    assert.deepEqual(RepoTags, ['loaded:1', 'loaded-too:latest']);
    assert.equal(Layers.length, 2);
    assert.equal((files.json('index.json') as Index).manifests.length, 2);
    assert.equal(
      (files.json('index.json') as Index).manifests[0]?.mediaType,
      `${DOCKER}.distribution.manifest.v2+json`,
    );
    await buildx.ok(['load', '-i', 'docker.tar']);
    const shown = await callJson<{ Id: string }>(engine.socketPath, 'GET', '/images/loaded-too/json');
    assert.equal(shown.Id, `sha256:${Config.split('/').at(-1)}`);
    const piped = buildx.start(['build', '-q', '-o', 'type=docker,dest=-', '.'], { in: 'a' });
    assert.match((await piped.ended).stdout, /manifest\.json/);
  });

  test('keeps to compression, types and annotations', async () => {
    const more = ['--annotation', 'a=b', '--annotation', 'manifest-descriptor:c=d'];
    await build('type=docker,dest=../plain.tar,compression=uncompressed,oci-mediatypes=true', more);
    const plain = ociFiles(join(buildx.directory, 'plain.tar'));
    const [entry] = (plain.json('index.json') as Index).manifests;
    assert.ok(entry);
    assert.equal(entry.annotations?.['c'], 'd');
    const manifest = plain.blob(entry) as Manifest;
    assert.deepEqual(manifest.annotations, { a: 'b' });
    const [layer] = manifest.layers;
    assert.equal(layer?.mediaType, `${OCI}.layer.v1.tar`);
    const config = plain.blob(manifest.config) as { rootfs: { diff_ids: string[] } };
    assert.equal(config.rootfs.diff_ids[0], layer.digest);
    for (const [output, words] of [
      ['type=oci,dest=../x.tar,compression=lzma', /unsupported layer compression type: lzma/],
      ['type=oci,dest=../x.tar,compression-level=x', /specified for compression-level/],
      ['type=docker,dest=../x.tar,force-compression=x', /non-bool value "x" specified for force-compression/],
      ['type=oci,dest=../x.tar,tar=x', /specified for tar/],
      ['type=image,store=x', /specified for store/],
      ['type=local,dest=../x,platform-split=x', /specified for platform-split/],
    ] as const) {
      const wrong = await buildx.run(['build', '-o', output, '.'], { in: 'a' });
      assert.match(wrong.stderr, words);
      assert.doesNotMatch(wrong.stderr, /COPY/, 'nothing is built for it');
    }
  });

  test('gives one digest for the same files, whenever they were written', async () => {
    const digests = new Set<unknown>();
    for (const seconds of [1_750_000_000, 1_760_000_000]) {
      for (const file of ['f', 'g']) utimesSync(join(buildx.directory, 'a', file), seconds, seconds);
      const output = 'type=oci,dest=../rewritten.tar,rewrite-timestamp=true';
      digests.add((await build(output, ['--no-cache']))['containerimage.digest']);
    }
    assert.equal(digests.size, 1);
    const files = ociFiles(join(buildx.directory, 'rewritten.tar'));
    const [entry] = (files.json('index.json') as Index).manifests;
    assert.ok(entry);
    const { layers, config } = files.blob(entry) as Manifest;
    assert.deepEqual(layers[0]?.annotations, { 'buildkit/rewritten-timestamp': EPOCH });
    const { rootfs } = files.blob(config) as { rootfs: { diff_ids: string[] } };
    const bytes = files.bytes(layers[0].digest);
    const tar = execFileSync('gunzip', { input: bytes });
    assert.equal(`sha256:${createHash('sha256').update(tar).digest('hex')}`, rootfs.diff_ids[0]);
    assert.match(execFileSync('tar', ['-tv', '--utc'], { input: tar }).toString(), /2023-11-14 22:13 dir\/f/);
  });

  test('sends files with their modes and links, and several outputs of one build', async () => {
    buildx.write(
      'files/Dockerfile',
      `FROM ${image} AS made\nRUN mkdir -p /out/sub && echo text > /out/sub/file && chmod 4751 /out/sub/file ` +
        '&& ln /out/sub/file /out/hard && ln -s sub/file /out/soft && mknod /out/null c 1 3\n' +
        'FROM scratch\nCOPY --from=made /out /\n',
    );
    const outputs = ['-o', '../tree', '-o', 'type=tar,dest=../tree.tar', '-o', 'type=image,name=several'];
    await buildx.ok(['build', ...outputs, '.'], { in: 'files' });
    const tree = join(buildx.directory, 'tree');
    assert.equal(readFileSync(join(tree, 'sub/file'), 'utf8'), 'text\n');
    assert.equal(statSync(join(tree, 'sub/file')).mode & 0o7777, 0o4751);
    assert.equal(readlinkSync(join(tree, 'soft')), 'sub/file');
    assert.equal(statSync(join(tree, 'hard')).ino, statSync(join(tree, 'sub/file')).ino);
    assert.match(execFileSync('tar', ['-tvf', join(buildx.directory, 'tree.tar')]).toString(), /^crw.* 1,3 .*null$/m);
    assert.notEqual((await buildx.ok(['images', '-q', 'several'])).stdout, '');
    const order = ['build', '--progress=plain', '-o', 'type=local,dest=../split,platform-split=true', '.'];
    assert.match((await buildx.ok(order, { in: 'files' })).stderr, /copying files linux\/amd64 \d+B .*done$/m);
    const split = join(buildx.directory, 'split');
    assert.deepEqual(readdirSync(split), ['linux_amd64']);
    assert.equal(statSync(join(split, 'linux_amd64/hard')).nlink, 2);
  });

  test('gives all files in a directory and in a tar the time that is asked for', async () => {
    await build('type=local,dest=../dated');
    const tree = join(buildx.directory, 'dated');
    for (const name of ['dir', 'dir/f', 'g']) assert.equal(statSync(join(tree, name)).mtimeMs, Number(EPOCH) * 1000);
    await build('type=tar,dest=../dated.tar,source-date-epoch=7');
    const listed = execFileSync('tar', ['-tv', '--utc', '-f', join(buildx.directory, 'dated.tar')]).toString();
    assert.equal(listed.match(/ 1970-01-01 00:00 /g)?.length, 3, listed);
  });

  test('pushes an image when it is built, and tells the digest', async () => {
    const name = `${registry.host}/team/app:2`;
    const pushed = await buildx.ok(['build', '--push', '-t', name, '.'], { in: 'a' });
    assert.match(pushed.stderr, /pushing manifest for .*team\/app:2@sha256:/);
    const reply: Reply = await call(engine.socketPath, 'GET', `/distribution/${name}/json`);
    assert.equal(reply.status, 200);
    const { RepoDigests } = await callJson<{ RepoDigests: string[] }>(engine.socketPath, 'GET', `/images/${name}/json`);
    assert.match(RepoDigests[0] ?? '', /team\/app@sha256:/);
    const refused = await buildx.run(['build', '--push', '-t', '127.0.0.1:1/no:1', '.'], { in: 'a' });
    assert.notEqual(refused.status, 0);
    assert.match(refused.stderr, /127\.0\.0\.1:1/);
  });

  test('builds for another platform what needs no processor of it, and says where it needs one', async () => {
    const name = `${registry.host}/team/foreign:1`;
    const arm = ['--platform', 'linux/arm64'];
    const inspect = async (of: string): Promise<{ readonly Architecture: string; readonly Id: string }> =>
      callJson(engine.socketPath, 'GET', `/images/${encodeURIComponent(of)}/json`);
    buildx.write(
      'arm/Dockerfile',
      `FROM --platform=$BUILDPLATFORM ${image} AS made\nARG TARGETARCH TARGETPLATFORM\n` +
        'RUN echo "$TARGETARCH $TARGETPLATFORM $(uname -m)" > /made\nFROM scratch\nCOPY --from=made /made /made\n',
    );
    await buildx.ok(['build', ...arm, '--push', '-t', name, '-o', '../arm-files', '.'], { in: 'arm' });
    assert.equal(readFileSync(join(buildx.directory, 'arm-files/made'), 'utf8'), 'arm64 linux/arm64 x86_64\n');
    const metadata = await build('type=oci,dest=../arm.tar', arm);
    assert.deepEqual((metadata['containerimage.descriptor'] as Descriptor).platform, {
      architecture: 'arm64',
      os: 'linux',
    });
    await buildx.ok(['build', ...arm, '-t', 'foreign:2', '.'], { in: 'a' });
    assert.equal((await inspect('foreign:2')).Architecture, 'arm64');
    // The name stands for an image of this host; that of the registry is the one that fits.
    await engineOk(engine, ['tag', image, name]);
    buildx.write('based/Dockerfile', `FROM ${name}\nCOPY f /f\n`);
    buildx.write('based/f', 'f');
    await buildx.ok(['build', ...arm, '--pull=false', '-t', 'foreign:3', '.'], { in: 'based' });
    assert.equal((await inspect('foreign:3')).Architecture, 'arm64');
    // It goes on to name the one of this host.
    assert.equal((await inspect(name)).Architecture, 'amd64');
    buildx.write('run/Dockerfile', `FROM ${name}\nRUN true\n`);
    assert.notEqual((await buildx.run(['build', ...arm, '.'], { in: 'run' })).status, 0);
    assert.match((await buildx.run(['build', '--platform', 'windows', '.'], { in: 'a' })).stderr, /for linux, not for/);
  });

  test('loads images, and refuses what it does not make', async () => {
    await buildx.ok(['build', '--load', '-t', 'plain', '.'], { in: 'a' });
    assert.notEqual((await buildx.ok(['images', '-q', 'plain'])).stdout, '');
    const cache = await buildx.run(['build', '--cache-to', 'type=azblob,name=cache,account_url=x', '.'], { in: 'a' });
    assert.match(cache.stderr, /unknown cache exporter: "azblob"/);
  });

  test('warns of what its checks find, and fails when they are errors', async () => {
    const text = `FROM ${image} as low\nENV A=$B\nRUN true\n`;
    const warned = await buildx.ok(['build', '-'], { input: text });
    // The client lists warnings at its end; whether it also shows them on the way depends on how fast it is.
    assert.match(warned.stderr, /FromAsCasing: 'as' and 'FROM' keywords' casing do not match \(line 1\)/);
    assert.match(warned.stderr, /UndefinedVar: Usage of undefined variable '\$B' \(line 2\)/);
    const failed = await buildx.run(['build', '-'], { input: `# check=error=true\n${text}` });
    assert.notEqual(failed.status, 0);
    assert.match(failed.stderr, /lint violation found for rules: FromAsCasing, UndefinedVar/);
    const silent = await buildx.ok(['build', '-'], { input: `# check=skip=all\n${text}` });
    assert.doesNotMatch(silent.stderr, /WARN/);
  });

  test('takes named contexts: images, directories, and results of other targets of a bake', async () => {
    buildx.write('bake/Dockerfile', `FROM base\nCOPY --from=dir x /x\nCOPY --from=img /etc/passwd /p\nRUN cat /made\n`);
    buildx.write('bake/base/Dockerfile', `FROM ${image}\nENV FROM_BASE=1\nRUN echo made > /made\nWORKDIR /base\n`);
    buildx.write('bake/dir/x', 'x of dir');
    buildx.write(
      'bake/docker-bake.hcl',
      'target "base" { context = "base" }\n' +
        `target "default" {\n contexts = { base = "target:base", dir = "./dir", img = "docker-image://${image}" }\n` +
        ' tags = ["linked"]\n}\n',
    );
    await buildx.ok(['buildx', 'bake'], { in: 'bake' });
    const files = [await fileOf(engine, 'linked', '/x'), await fileOf(engine, 'linked', '/made')];
    assert.deepEqual(files, ['x of dir', 'made\n']);
    const shown = await callJson<{ Config: { Env: string[]; WorkingDir: string } }>(
      engine.socketPath,
      'GET',
      '/images/linked/json',
    );
    assert.ok(shown.Config.Env.includes('FROM_BASE=1'));
    assert.equal(shown.Config.WorkingDir, '/base');
  });

  test('tells of builds afterwards: the result, the provenance, the lines that were wrong', async () => {
    const metadata = await build('type=image,name=told', ['--build-arg', 'A=2']);
    const provenance = metadata['buildx.build.provenance'] as { invocation: { parameters: object } };
    const args = { 'build-arg:A': '2', 'build-arg:SOURCE_DATE_EPOCH': EPOCH };
    assert.deepEqual(provenance.invocation.parameters, {
      frontend: 'dockerfile.v0',
      args,
      locals: [{ name: 'context' }, { name: 'dockerfile' }],
    });
    const inspected = await buildx.ok(['buildx', 'history', 'inspect']);
    assert.match(inspected.stdout, new RegExp(`${String(metadata['containerimage.config.digest'])}.*image\\.v1`));
    assert.match(inspected.stdout, /https:\/\/slsa\.dev\/provenance\/v0\.2/);
    const config = await buildx.ok([
      'buildx',
      'history',
      'inspect',
      'attachment',
      '--type',
      `${DOCKER}.container.image.v1+json`,
    ]);
    assert.match(config.stdout, /"architecture"/);
    buildx.write('a/bad', 'FROM scratch\nCOPY nope /\n');
    await buildx.run(['build', '-f', 'bad', '.'], { in: 'a' });
    assert.match((await buildx.ok(['buildx', 'history', 'inspect'])).stdout, /2 \| >>> COPY nope \//);
    buildx.write('a/warned', 'FROM scratch as low\nCOPY f /\n');
    await buildx.ok(['build', '-f', 'warned', '.'], { in: 'a' });
    assert.match((await buildx.ok(['buildx', 'history', 'logs'])).stderr, /WARN: FromAsCasing/);
    await buildx.ok(['buildx', 'history', 'rm', '--all']);
    assert.equal((await buildx.ok(['buildx', 'history', 'ls', '--format', '{{.Ref}}'])).stdout.trim(), '');
  });

  test('leaves no file of an export', async () => {
    assert.deepEqual(
      readdirSync(join(engine.dir, 'data/tmp')).filter((name) => name.includes('build-export')),
      [],
    );
    assert.equal(await engineOk(engine, ['ps', '-aq']), '');
  });
});
