/**
 * Tests of images of several platforms that are built into the store of containerd, for both engines: the unmodified
 * buildx and compose, and a base of both platforms in a registry.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from './buildx.js';
import { buildxPlugins } from './dockerd.js';
import { attempt, engineOk } from './engine-commands.js';
import type { Engine } from './engine.js';
import { call, callJson } from './http.js';
import { inArchive, load } from './image-archives.js';
import type { Index, Manifest } from './oci-archive.js';
import type { TestRegistry } from './registry.js';

interface Listed {
  readonly Id: string;
  readonly RepoTags: readonly string[];
  readonly Size: number;
  readonly Manifests: readonly {
    readonly ID: string;
    readonly Kind: string;
    readonly Available: boolean;
    readonly Size: { readonly Content: number; readonly Total: number };
    readonly ImageData?: { readonly Platform: { readonly architecture: string } };
  }[];
}
interface Inspected {
  readonly Id: string;
  readonly Architecture: string;
  readonly Config: { readonly Env: readonly string[] };
  readonly RepoDigests: readonly string[];
}
type Metadata = Readonly<Record<string, unknown>>;

export interface PlatformScene {
  readonly engine: Engine;
  readonly registry: TestRegistry;
  /** An image of both platforms, in the registry. */
  readonly base: string;
}

const BOTH = ['--platform', 'linux/amd64,linux/arm64'];
const EPOCH = ['--build-arg', 'SOURCE_DATE_EPOCH=1700000000'];
const FILES = ['--metadata-file', '../metadata.json', '--iidfile', '../iid'];
const ARM = encodeURIComponent('{"os":"linux","architecture":"arm64"}');

/** Declares the tests. */
export function buildsOfPlatforms(scene: () => PlatformScene): void {
  describe('builds for several platforms', { skip: buildxPlugins() === undefined && 'needs buildx' }, () => {
    const builds = new Builds(scene);
    const requests = requestsTo(scene);
    before(() => builds.begin());
    after(async () => {
      builds.end();
      // Only one of the engines has its base among the images.
      await attempt(scene().engine, ['rmi', scene().base]);
      for (const path of ['/images/prune', '/build/prune?all=1']) await call(scene().engine.socketPath, 'POST', path);
      assert.deepEqual(await requests.list(), []);
    });
    indexes(scene, builds, requests);
    attested(scene, builds, requests);
    ofOneBase(scene, builds);
    names(scene, builds, requests);
  });
}

class Builds {
  readonly #directory = mkdtempSync(join(tmpdir(), 'builds-of-platforms-'));
  #buildx: Buildx | undefined;

  constructor(private readonly scene: () => PlatformScene) {}

  begin(): void {
    const { engine, base } = this.scene();
    this.#buildx = new Buildx(join(this.#directory, 'work'), engine.host);
    // The first stage runs on this machine whatever the image is for.
    this.buildx.write(
      'a/Dockerfile',
      `FROM --platform=$BUILDPLATFORM ${base} AS made\nARG TARGETARCH\nRUN echo "for $TARGETARCH" >/made\n` +
        `FROM ${base}\nCOPY --from=made /made /made\nCOPY file /file\nARG TARGETARCH\nENV FOR=$TARGETARCH\n`,
    );
    this.buildx.write('a/file', 'of the context\n');
    this.buildx.write('small/Dockerfile', 'FROM scratch\nCOPY Dockerfile /\nARG OF\nLABEL of=$OF\n');
  }

  get buildx(): Buildx {
    return this.#buildx ?? assert.fail('not begun');
  }

  /** Builds, and returns what the client has written of it, with the digest in the file for the ID. */
  async build(from: string, ...args: string[]): Promise<Metadata & { readonly iid: string }> {
    await this.buildx.ok(['build', ...BOTH, ...FILES, ...args, '.'], { in: from });
    const read = (name: string): string => readFileSync(join(this.buildx.directory, name), 'utf8');
    return { ...(JSON.parse(read('metadata.json')) as Metadata), iid: read('iid') };
  }

  end(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

type Requests = ReturnType<typeof requestsTo>;

function requestsTo(scene: () => PlatformScene) {
  const list = (): Promise<Listed[]> =>
    callJson<Listed[]>(scene().engine.socketPath, 'GET', '/v1.51/images/json?manifests=1');
  const inspect = (name: string, query = ''): Promise<Inspected> =>
    callJson<Inspected>(scene().engine.socketPath, 'GET', `/v1.51/images/${name}/json${query}`);
  const named = async (name: string): Promise<Listed> =>
    (await list()).find(({ RepoTags }) => RepoTags.includes(name)) ?? assert.fail(name);
  const available = async (name: string): Promise<unknown[]> =>
    (await named(name)).Manifests.filter(({ Available }) => Available).map(
      ({ Kind, ImageData }) => ImageData?.Platform.architecture ?? Kind,
    );
  /** Reads a file of an image, of the platform that is asked for. */
  async function fileOf(name: string, path: string, ...platform: string[]): Promise<string> {
    const id = await engineOk(scene().engine, ['create', '--pull', 'never', ...platform, name, '/none']);
    const file = await call(scene().engine.socketPath, 'GET', `/v1.51/containers/${id}/archive?path=${path}`);
    await engineOk(scene().engine, ['rm', id]);
    return file.body.subarray(512).toString('latin1').replace(/\0.*$/s, '');
  }
  return { list, inspect, named, available, fileOf };
}

function indexes(scene: () => PlatformScene, builds: Builds, { inspect, named, available, fileOf }: Requests): void {
  test('an index is stored under each name, and its digest is what clients are told', async () => {
    const built = await builds.build('a', '--provenance=false', ...EPOCH, '-t', 'built:1', '-t', 'built:2');
    const image = await named('built:1');
    assert.deepEqual(image.RepoTags, ['built:1', 'built:2']);
    const { digest } = built['containerimage.descriptor'] as { readonly digest: string };
    assert.deepEqual(
      [digest, built['containerimage.digest'], built.iid, built['containerimage.config.digest']],
      [image.Id, image.Id, image.Id, undefined],
    );
    assert.equal(built['image.name'], 'docker.io/library/built:1,docker.io/library/built:2');
    assert.deepEqual(await available('built:1'), ['amd64', 'arm64']);
    const [host, arm] = [await inspect('built:1'), await inspect('built:1', `?platform=${ARM}`)];
    assert.deepEqual([host.Id, host.Architecture, arm.Architecture], [image.Id, 'amd64', 'arm64']);
    assert.ok(host.Config.Env.includes('FOR=amd64') && arm.Config.Env.includes('FOR=arm64'));
    assert.equal(await fileOf('built:1', '/made'), 'for amd64\n');
    assert.equal(await fileOf('built:1', '/made', '--platform', 'linux/arm64'), 'for arm64\n');
    assert.equal(await fileOf('built:1', '/which', '--platform', 'linux/arm64'), 'arm64\n');
    // All is in the cache, for each platform and for both.
    const again = await builds.build('a', '--provenance=false', ...EPOCH, '-t', 'again:1');
    assert.equal(again.iid, image.Id);
    assert.deepEqual((await named('again:1')).RepoTags, ['again:1', 'built:1', 'built:2']);
  });

  test('push, save and load take the index with all that it names', async () => {
    const name = `${scene().registry.host}/built:1`;
    const { Id } = await named('built:1');
    await engineOk(scene().engine, ['tag', 'built:1', name]);
    assert.match(await engineOk(scene().engine, ['push', name]), new RegExp(`1: digest: ${Id}`));
    const { body } = await call(scene().engine.socketPath, 'GET', `/images/get?names=${name}`);
    assert.deepEqual(inArchive(body).named, [Id]);
    await engineOk(scene().engine, ['rmi', name, 'built:1', 'built:2', 'again:1']);
    assert.equal((await load(scene().engine, body)).error, undefined);
    assert.equal((await inspect(name)).Id, Id);
    assert.deepEqual(await available(name), ['amd64', 'arm64']);
    await engineOk(scene().engine, ['rmi', name]);
  });
}

function attested(scene: () => PlatformScene, builds: Builds, { named, available }: Requests): void {
  test('what is attested and annotated is stored and pushed with it', async () => {
    const name = `${scene().registry.host}/attested:1`;
    const output = `type=image,name=${name},push=true,annotation-index.a=b,annotation-manifest[linux/arm64].c=d`;
    const built = await builds.build('small', '--provenance=mode=min', '-o', output);
    const { Id, Manifests, Size } = await named(name);
    assert.equal(built.iid, Id);
    assert.deepEqual(await available(name), ['amd64', 'arm64', 'attestation', 'attestation']);
    assert.equal(
      Size,
      Manifests.reduce((sum, one) => sum + one.Size.Total, 0),
    );
    const accept = ['index', 'manifest'].map((type) => `application/vnd.oci.image.${type}.v1+json`).join(',');
    const fetched = async <T>(path: string): Promise<T> =>
      (await fetch(`${scene().registry.url}/v2/attested/${path}`, { headers: { accept } })).json() as Promise<T>;
    const index = await fetched<Index>('manifests/1');
    assert.deepEqual(index.annotations, { a: 'b' });
    const [amd, arm, ...attestations] = await Promise.all(
      index.manifests.map(({ digest }) => fetched<Manifest>(`manifests/${digest}`)),
    );
    assert.deepEqual([amd?.annotations, arm?.annotations], [undefined, { c: 'd' }]);
    for (const [at, { layers }] of attestations.entries()) {
      type Statement = { readonly subject: readonly { readonly digest: { readonly sha256: string } }[] };
      const { subject } = await fetched<Statement>(`blobs/${layers[0]?.digest}`);
      assert.equal(`sha256:${subject[0]?.digest.sha256}`, index.manifests[at]?.digest);
    }
    const saved = async (): Promise<Buffer> =>
      (await call(scene().engine.socketPath, 'GET', `/images/get?names=${name}`)).body;
    const archive = await saved();
    await engineOk(scene().engine, ['rmi', name]);
    assert.equal((await load(scene().engine, archive)).error, undefined);
    assert.deepEqual((await named(name)).Manifests, Manifests);
    assert.deepEqual(inArchive(await saved()), inArchive(archive));
    await engineOk(scene().engine, ['rmi', name]);
  });
}

function ofOneBase(scene: () => PlatformScene, builds: Builds): void {
  test('a base of one platform gives an image for each platform that is asked for', async () => {
    const { base, registry } = scene();
    const accept = ['index', 'manifest'].map((type) => `application/vnd.oci.image.${type}.v1+json`).join(',');
    const read = async (path: string): Promise<Index> =>
      (await fetch(`${registry.url}/v2/${path}`, { headers: { accept } })).json() as Promise<Index>;
    const [name = '', repository = '', tag = ''] = /^[^/]*\/(.*):(.*)$/.exec(base) ?? [];
    const [amd] = (await read(`${repository}/manifests/${tag}`)).manifests;
    builds.buildx.write('one/Dockerfile', `FROM ${name.replace(/:[^:]*$/, '')}@${amd?.digest}\nCOPY Dockerfile /\n`);
    await builds.build('one', '--provenance=false', '-o', `type=image,name=${registry.host}/one:1,push=true`);
    const { manifests } = await read('one/manifests/1');
    assert.deepEqual(
      manifests.map(({ platform }) => (platform as { readonly architecture: string }).architecture),
      ['amd64', 'arm64'],
    );
    await engineOk(scene().engine, ['rmi', `${registry.host}/one:1`]);
  });
}

function names(scene: () => PlatformScene, builds: Builds, { named, available }: Requests): void {
  test('compose and bake build them, too, and a name leaves the image that it had', async () => {
    const platforms = ['linux/amd64', 'linux/arm64'];
    const write = (name: string, content: object): void => builds.buildx.write(name, JSON.stringify(content));
    const service = { context: '.', platforms, provenance: false, args: { OF: 'compose' }, tags: ['staying:1'] };
    write('small/compose.yaml', { services: { one: { image: 'moving:1', build: service } } });
    write('small/docker-bake.json', { target: { default: { platforms, args: { OF: 'bake' }, tags: ['moving:1'] } } });
    await builds.buildx.ok(['compose', 'build'], { in: 'small' });
    const { Id, RepoTags } = await named('moving:1');
    assert.deepEqual(RepoTags, ['moving:1', 'staying:1']);
    const env = { BUILDX_NO_DEFAULT_ATTESTATIONS: '1' };
    await builds.buildx.ok(['buildx', 'bake', '-f', 'docker-bake.json'], { in: 'small', env });
    const [moving, staying] = [await named('moving:1'), await named('staying:1')];
    assert.notEqual(moving.Id, Id);
    assert.deepEqual([moving.RepoTags, staying.RepoTags, staying.Id], [['moving:1'], ['staying:1'], Id]);
    // One of the engines attests what nobody asks for.
    for (const name of ['moving:1', 'staying:1'])
      assert.deepEqual((await available(name)).slice(0, 2), ['amd64', 'arm64'], name);
    await engineOk(scene().engine, ['rmi', 'staying:1', 'moving:1']);
  });
}
