/** Images that go to a registry at once, since the store cannot keep them, with the unmodified buildx. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, watch, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { publishImage, startFaultyServer } from '../support/faulty-registry.js';
import { callJson } from '../support/http.js';
import { GrpcBridge } from '../support/grpc-bridge.js';
import { buildImage, buildLayer } from '../support/image-builder.js';
import type { Descriptor, Index, Manifest } from '../support/oci-archive.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { type RegistryGate, startRegistryGate } from '../support/registry-gate.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'pushes-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const BOTH = ['--platform', 'linux/amd64,linux/arm64'];
const TYPES = ['oci.image.index.v1', 'oci.image.manifest.v1', 'docker.distribution.manifest.v2'];
let engine: Engine;
let registry: TestRegistry;
let buildx: Buildx;
let gate: RegistryGate;

before(async () => {
  ({ engine } = await startEngineWithImage(cleanup));
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  gate = await startRegistryGate(registry);
  cleanup.add(() => gate.stop());
  buildx = new Buildx(join(directory, 'work'), engine.host);
  buildx.write('a/Dockerfile', 'FROM scratch\nCOPY file /file\nARG TARGETARCH\nENV FOR=$TARGETARCH\nCMD ["x"]\n');
  buildx.write('a/file', 'of the context\n');
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

/** Builds `a` and returns the metadata that the client has written. */
async function build(...args: string[]): Promise<Readonly<Record<string, unknown>>> {
  await buildx.ok(['build', '--metadata-file', '../metadata.json', ...args, '.'], { in: 'a' });
  return JSON.parse(readFileSync(join(buildx.directory, 'metadata.json'), 'utf8')) as Record<string, unknown>;
}

/** Asks the registry itself. */
async function manifest(repository: string, reference: string): Promise<unknown> {
  const accept = [...TYPES, 'docker.distribution.manifest.list.v2'].map((type) => `application/vnd.${type}+json`);
  const answer = await fetch(`http://${registry.host}/v2/${repository}/manifests/${reference}`, {
    headers: { accept: accept.join(',') },
  });
  assert.equal(answer.status, 200, `${repository} ${reference}`);
  return answer.json();
}

async function blob(repository: string, { digest, size }: Descriptor): Promise<Buffer> {
  const answer = await fetch(`http://${registry.host}/v2/${repository}/blobs/${digest}`);
  const bytes = Buffer.from(await answer.arrayBuffer());
  assert.equal(bytes.length, size);
  return bytes;
}

describe('docker build --push', { skip }, () => {
  test('pushes several platforms under several names, which anybody pulls', async () => {
    const names = [`${registry.host}/team/several:1`, `${registry.host}/team/copy:2`];
    const metadata = await build(...BOTH, '--push', ...names.flatMap((name) => ['-t', name]));
    assert.equal(metadata['image.name'], names.join(','));
    for (const repository of ['team/several', 'team/copy']) {
      const tag = repository === 'team/several' ? '1' : '2';
      const index = (await manifest(repository, tag)) as Index;
      assert.equal(index.mediaType, 'application/vnd.docker.distribution.manifest.list.v2+json');
      assert.deepEqual(
        index.manifests.map(({ platform }) => platform),
        [
          { architecture: 'amd64', os: 'linux' },
          { architecture: 'arm64', os: 'linux' },
        ],
      );
      assert.deepEqual(await manifest(repository, String(metadata['containerimage.digest'])), index);
    }
    const { stdout } = await buildx.ok(['buildx', 'imagetools', 'inspect', names[0] ?? '']);
    assert.match(stdout, /linux\/amd64[^]*linux\/arm64/);
    for (const arch of ['amd64', 'arm64']) {
      await engineOk(engine, ['pull', '-q', '--platform', `linux/${arch}`, names[0] ?? '']);
      const image = await callJson<{ Architecture: string; Config: { Env: string[] } }>(
        engine.socketPath,
        'GET',
        `/images/${names[0]}/json`,
      );
      assert.equal(image.Architecture, arch);
      assert.ok(image.Config.Env.includes(`FOR=${arch}`));
    }
  });

  test('a base that is not here shows what it is, its bytes and its unpacking', async () => {
    const name = `${registry.host}/team/rows:1`;
    buildx.write('rows/Dockerfile', 'FROM scratch\nCOPY file /file\n');
    buildx.write('rows/file', 'nowhere else\n');
    await buildx.ok(['build', ...BOTH, '--push', '-t', name, '.'], { in: 'rows' });
    await buildx.ok(['builder', 'prune', '-af']);
    buildx.write('on-it/Dockerfile', `FROM ${name}\n`);
    const { stderr } = await buildx.ok(['build', '--progress', 'plain', '.'], { in: 'on-it' });
    const row = (text: string): RegExp => new RegExp(`^#\\d+ ${text}( [\\d.]+s)? done$`, 'm');
    assert.match(stderr, row(`resolve ${name}@sha256:[0-9a-f]{64}`));
    const [, digest] = row('(sha256:[0-9a-f]{64}) (\\d+B) / \\2').exec(stderr) ?? assert.fail(stderr);
    assert.match(stderr, row(`extracting ${digest}`));
  });

  test('a base whose layer is not what its digest says fails the step in the words of a pull', async () => {
    const server = await startFaultyServer();
    cleanup.add(() => server.stop());
    const image = buildImage({ layers: [buildLayer([{ path: 'file', content: 'nowhere else, either' }])] });
    publishImage(server, image, 'lies');
    const { digest, blob } = image.layers[0] ?? assert.fail();
    server.documents.set(`/v2/lies/blobs/${digest}`, { body: Buffer.alloc(blob.length, 7) });
    const { status, stderr } = await buildx.run(['build', '--progress', 'plain', '-'], {
      input: `FROM ${server.host}/lies\n`,
    });
    assert.equal(status, 1);
    const words = `filesystem layer verification failed for digest ${digest}`;
    assert.match(stderr, new RegExp(`^#\\d+ ERROR: ${words}$`, 'm'));
    assert.match(stderr, new RegExp(`^ERROR: failed to build: failed to solve: ${words}$`, 'm'));
    assert.doesNotMatch(stderr, /extracting/);
  });

  test('pushes by digest, for those who put the platforms together themselves', async () => {
    // The client asks for it only of builders that it believes to be no dockerd.
    const bridge = await GrpcBridge.start(join(directory, 'bridge.sock'), engine.socketPath);
    cleanup.add(() => bridge.close());
    await buildx.ok(['buildx', 'create', '--name', 'bridged', '--driver', 'remote', `unix://${directory}/bridge.sock`]);
    const name = `${registry.host}/team/parts`;
    const digests: string[] = [];
    for (const arch of ['amd64', 'arm64']) {
      const output = `type=image,name=${name},push-by-digest=true,name-canonical=true,push=true`;
      const metadata = await build('--builder', 'bridged', '--platform', `linux/${arch}`, '-o', output);
      const digest = String(metadata['containerimage.digest']);
      const { config } = (await manifest('team/parts', digest)) as Manifest;
      assert.equal(metadata['containerimage.config.digest'], config.digest);
      digests.push(`${name}@${digest}`);
    }
    const tags = await fetch(`http://${registry.host}/v2/team/parts/tags/list`);
    assert.deepEqual(((await tags.json()) as { tags?: string[] | null }).tags ?? [], []);
    await buildx.ok(['buildx', 'imagetools', 'create', '-t', `${name}:all`, ...digests]);
    const index = (await manifest('team/parts', 'all')) as Index;
    assert.deepEqual(
      index.manifests.map((one) => `${name}@${one.digest}`),
      digests,
    );
    // Nothing of them is left here.
    assert.equal((await engineOk(engine, ['images', '-q', name])).trim(), '');
    const tagged = await buildx.run(
      ['build', '--builder', 'bridged', '-o', `type=image,name=${name}:1,push-by-digest=true,push=true`, '.'],
      {
        in: 'a',
      },
    );
    assert.match(tagged.stderr, /can't push tagged ref .*parts:1 by digest/);
  });

  test('pushes annotations, the types of OCI and other compressions, and keeps the image here too', async () => {
    const name = `${registry.host}/team/other:1`;
    await build('-t', name, '-o', 'type=image,push=true,compression=uncompressed,annotation.who=me');
    const { mediaType, annotations, layers, config } = (await manifest('team/other', '1')) as Manifest;
    assert.equal(mediaType, 'application/vnd.oci.image.manifest.v1+json');
    assert.deepEqual(annotations, { who: 'me' });
    assert.deepEqual(
      layers.map((layer) => layer.mediaType),
      ['application/vnd.oci.image.layer.v1.tar'],
    );
    assert.match((await blob('team/other', layers[0] as Descriptor)).toString('latin1'), /ustar/);
    const here = await callJson<{ Id: string }>(engine.socketPath, 'GET', `/images/${name}/json`);
    assert.equal(here.Id, config.digest);
    await engineOk(engine, ['rmi', '-f', name]);
    await engineOk(engine, ['pull', '-q', name]);
    assert.equal((await callJson<{ Id: string }>(engine.socketPath, 'GET', `/images/${name}/json`)).Id, here.Id);
    const both = `${registry.host}/team/other:both`;
    const index = ['--annotation', 'index:all=of us', '--annotation', 'manifest[linux/arm64]:only=arm'];
    await build(...BOTH, '-t', both, '--push', ...index);
    const listed = (await manifest('team/other', 'both')) as Index;
    assert.deepEqual(listed.annotations, { all: 'of us' });
    const manifests = await Promise.all(listed.manifests.map(async ({ digest }) => manifest('team/other', digest)));
    assert.deepEqual(
      manifests.map((one) => (one as Manifest).annotations),
      [undefined, { only: 'arm' }],
    );
  });

  test('tells of an image that is kept here, too, under which digest the registry has it', async () => {
    buildx.write('kept/Dockerfile', 'FROM scratch\nCOPY Dockerfile /kept\n');
    const digests: string[] = [];
    for (const [name, ...args] of [
      ['attested', '--provenance=mode=min', '--push', '-t', `${registry.host}/kept/attested:1`],
      ['other', '-o', `type=image,name=${registry.host}/kept/other:1,push=true,compression=uncompressed`],
      ['usual', '--push', '-t', `${registry.host}/kept/usual:1`],
    ] as const) {
      await buildx.ok(['build', '--metadata-file', '../metadata.json', ...args, '.'], { in: 'kept' });
      const metadata = JSON.parse(readFileSync(join(buildx.directory, 'metadata.json'), 'utf8')) as object;
      const digest = String(Reflect.get(metadata, 'containerimage.digest'));
      const path = `/images/${registry.host}/kept/${name}:1/json`;
      const { RepoDigests } = await callJson<{ RepoDigests: string[] }>(engine.socketPath, 'GET', path);
      const own = RepoDigests.filter((one) => one.startsWith(`${registry.host}/kept/${name}@`));
      assert.equal(own.length, 1, RepoDigests.join(' '));
      // The metadata of the usual push has the ID of the image, as those of dockerd without its snapshotter.
      if (name !== 'usual') assert.deepEqual(own, [`${registry.host}/kept/${name}@${digest}`]);
      await manifest(`kept/${name}`, own[0]?.split('@')[1] ?? '');
      digests.push(...own);
    }
    // Each of these names is that of the same image.
    const ids = await Promise.all(digests.map((one) => engineOk(engine, ['image', 'inspect', '-f', '{{.Id}}', one])));
    assert.equal(new Set(ids).size, 1, ids.join(''));
  });

  test('compresses each layer once for all names, and tries again what the registry does not take', async () => {
    const names = ['once', 'twice', 'thrice'].map((name) => `${gate.host}/team/${name}:1`);
    const prepared = new Set<string>();
    const places = watch(join(engine.dir, 'data/tmp'), (_event, name) => {
      if (name?.startsWith('build-export-') === true) prepared.add(name);
    });
    let [refused, broken] = [0, 0];
    gate.guard = ({ method }, response) => {
      // Each push begins with a question for the first layer.
      if (method === 'HEAD' && refused++ === 0) response.writeHead(503, { 'retry-after': '0' }).end();
      else if (method === 'PATCH' && broken++ === 0) response.destroy();
      else return 'passes';
      return 'taken';
    };
    await build('-o', `type=image,"name=${names.join(',')}",push=true,compression=uncompressed`);
    places.close();
    gate.guard = () => 'passes';
    assert.equal(prepared.size, 1, [...prepared].join(' '));
    assert.ok(broken > names.length, 'the one that broke, too');
    for (const repository of ['team/once', 'team/twice', 'team/thrice']) {
      const { layers } = (await manifest(repository, '1')) as Manifest;
      assert.match(layers[0]?.mediaType ?? '', /diff\.tar$/);
      await blob(repository, layers[0] as Descriptor);
    }
  });

  test('sends no more files at a time than max-concurrent-uploads says', async () => {
    const settings = join(engine.dir, 'daemon.json');
    const set = async (content: object): Promise<void> => {
      writeFileSync(settings, JSON.stringify(content));
      await callJson(engine.socketPath, 'POST', '/engine/config/reload');
    };
    await set({ 'max-concurrent-uploads': 2 });
    buildx.write('many/Dockerfile', ['FROM scratch', ...[1, 2, 3, 4, 5].map((n) => `COPY f${n} /`)].join('\n'));
    for (const n of [1, 2, 3, 4, 5]) buildx.write(`many/f${n}`, `file ${n}`);
    let [open, most] = [0, 0];
    const held: (() => void)[] = [];
    gate.guard = ({ method }, response, forward) => {
      if (method !== 'PATCH') return 'passes';
      most = Math.max(most, ++open);
      response.once('close', () => open--);
      held.push(forward);
      return 'taken';
    };
    const output = `type=image,name=${gate.host}/team/many:1,push=true,compression=uncompressed`;
    const pushed = buildx.ok(['build', '-o', output, '.'], { in: 'many' });
    try {
      // While the first one is held, another one ends again and again: the limit would be passed by now.
      for (let ended = 0; ended < 4; ended++) {
        await waitFor('two uploads at a time', () => open === 2 && held.length === ended + 2);
        held[ended + 1]?.();
      }
      held[0]?.();
      await pushed;
      assert.equal(most, 2);
    } finally {
      gate.guard = () => 'passes';
      for (const forward of held) forward();
      await pushed.catch(() => undefined);
      await set({});
    }
  });

  test('fails when the registry does, and when there is no name', async () => {
    const gone = await buildx.run(['build', ...BOTH, '--push', '-t', '127.0.0.1:1/no:1', '.'], { in: 'a' });
    assert.notEqual(gone.status, 0);
    assert.match(gone.stderr, /127\.0\.0\.1:1/);
    const nameless = await buildx.run(['build', ...BOTH, '-o', 'type=image,push=true', '.'], { in: 'a' });
    assert.match(nameless.stderr, /tag is needed when pushing to registry/);
  });
});
