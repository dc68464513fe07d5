/**
 * An index whose images of several platforms are here is one image with one ID, where images are kept in the
 * supervisor: the same requests and the same answers from dockerd with its store in containerd and from this engine. As
 * dockerd's answers stay the same, it is asked for all of them with ENGINE_UNDER_TEST=dockerd only.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { buildsOfPlatforms } from '../support/builds-of-platforms.js';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk } from '../support/cli.js';
import { dockerd, whyNoDockerd } from '../support/dockerd.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined, isTestingDockerd } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { inArchive, load } from '../support/image-archives.js';
import {
  type BuiltImage,
  buildImage,
  buildIndex,
  buildLayer,
  busyboxEntries,
  pushImage,
  pushManifest,
} from '../support/image-builder.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';

interface Listed {
  readonly Id: string;
  readonly RepoTags: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
  readonly Size: number;
  readonly Manifests: readonly {
    readonly ID: string;
    readonly Available: boolean;
    readonly Size: { readonly Content: number; readonly Total: number };
    readonly ImageData: { readonly Containers: readonly string[] | null };
  }[];
}
interface Inspected {
  readonly Id: string;
  readonly Architecture: string;
  readonly Descriptor: { readonly digest: string };
  readonly Size: number;
}

const files = busyboxEntries();
/** The programs of all of them run on this machine. */
const imageOf = (architecture: string): BuiltImage => {
  const layers = [buildLayer([...files, { path: 'which', content: `${architecture}\n` }])];
  return buildImage({ layers, format: 'oci', architecture, config: { Labels: { architecture } } });
};
const [amd, arm, other] = [imageOf('amd64'), imageOf('arm64'), imageOf('s390x')];
/** Something of the first one is never pulled. */
const [three, two] = [buildIndex([arm, amd, other], 'oci'), buildIndex([amd, arm], 'oci')];
const contentOf = ({ manifest, config, layers }: BuiltImage): number =>
  manifest.length + config.length + layers.reduce((sum, { blob }) => sum + blob.length, 0);
const blobsOf = ({ digest, id, layers }: BuiltImage): string[] => [digest, id, ...layers.map((layer) => layer.digest)];
const platform = (architecture: string): string => encodeURIComponent(JSON.stringify({ os: 'linux', architecture }));

const cleanup = new Cleanup();
let registry: TestRegistry;
before(async () => {
  registry = await startRegistry();
  cleanup.add(() => registry.stop());
  for (const [repository, index] of [
    ['three', three],
    ['two', two],
  ] as const) {
    for (const one of [amd, arm, other]) await pushImage(registry.url, repository, one.platform.architecture, one);
    await pushManifest(registry.url, repository, '1', index);
  }
});
after(() => cleanup.run());

/** Requests to one engine. */
function requestsTo(current: () => Engine) {
  const name = (repository: string): string => `${registry.host}/${repository}:1`;
  const list = (): Promise<Listed[]> =>
    callJson<Listed[]>(current().socketPath, 'GET', '/v1.51/images/json?manifests=1');
  const only = async (id: string): Promise<Listed> => {
    const found = (await list()).filter(({ Id }) => Id === id);
    assert.equal(found.length, 1);
    return found[0] ?? assert.fail();
  };
  const inspect = (query = '', repository = 'three'): Promise<Inspected> =>
    callJson<Inspected>(current().socketPath, 'GET', `/v1.51/images/${name(repository)}/json${query}`);
  const refused = async (method: string, path: string, status: number, message: RegExp): Promise<void> => {
    const reply = await call(current().socketPath, method, `/v1.51${path}`);
    assert.equal(reply.status, status, reply.text);
    assert.match((JSON.parse(reply.text) as { message: string }).message, message);
  };
  const available = ({ Manifests }: Listed): unknown[] => Manifests.map(({ ID, Available }) => [ID, Available]);
  /** The image of which two platforms are here. */
  const withTwo = async (): Promise<Listed> => {
    const image = await only(three.digest);
    assert.deepEqual(available(image), [
      [arm.digest, true],
      [amd.digest, true],
      [other.digest, false],
    ]);
    // This machine runs the one that is shown.
    assert.deepEqual(image.Labels, { architecture: 'amd64' });
    return image;
  };
  const saved = async (query = '', repository = 'three'): Promise<Buffer> =>
    (await call(current().socketPath, 'GET', `/v1.51/images/get?names=${name(repository)}${query}`)).body;
  const pull = async (architecture: string, repository = 'three'): Promise<void> => {
    const query = `fromImage=${encodeURIComponent(name(repository))}&platform=linux/${architecture}`;
    const { text } = await call(current().socketPath, 'POST', `/v1.51/images/create?${query}`);
    assert.match(text, /"Status: /);
  };
  const pullBoth = async (repository: string): Promise<void> => {
    for (const architecture of ['arm64', 'amd64']) await pull(architecture, repository);
  };
  return { name, list, only, inspect, refused, available, withTwo, saved, pull, pullBoth };
}

function pullAndInspect(current: () => Engine): void {
  const { name, list, only, inspect, refused, withTwo, pull } = requestsTo(current);

  test('a second platform comes to the image that is there', async () => {
    await pull('arm64');
    assert.deepEqual((await only(three.digest)).Labels, { architecture: 'arm64' });
    await pull('amd64');
    const image = await withTwo();
    const sizes = image.Manifests.map(({ Size }) => Size.Content);
    assert.deepEqual(sizes, [contentOf(arm), contentOf(amd), 0]);
    assert.equal(
      image.Size,
      image.Manifests.reduce((sum, { Size }) => sum + Size.Total, 0),
    );
    assert.equal((await list()).length, 1);
  });

  test('inspect and history tell of the platform that is asked for', async () => {
    const whole = await inspect();
    assert.deepEqual([whole.Id, whole.Architecture, whole.Descriptor.digest], [three.digest, 'amd64', three.digest]);
    const one = await inspect(`?platform=${platform('arm64')}`);
    assert.deepEqual([one.Id, one.Architecture, one.Descriptor.digest], [arm.digest, 'arm64', arm.digest]);
    assert.deepEqual(
      [whole.Size, one.Size],
      [amd, arm].map((image) => three.manifest.length + contentOf(image)),
    );
    const missing = /three:1 was found but does not provide the specified platform \(linux\/s390x\)$/;
    for (const path of ['json', 'history'])
      await refused('GET', `/images/${name('three')}/${path}?platform=${platform('s390x')}`, 404, missing);
    await refused('GET', `/images/${arm.digest}/json`, 404, /^No such image/);
  });
}

function use(current: () => Engine): void {
  const { name, only } = requestsTo(current);

  test('containers are made of the platform that is asked for, and it is shown as used', async () => {
    for (const [of, expected] of [
      ['arm64', arm],
      ['amd64', amd],
      [undefined, amd],
    ] as const) {
      const asked = of === undefined ? [] : ['--platform', `linux/${of}`];
      const at = of ?? 'any';
      const create = ['create', '--pull', 'never', '--network', 'none', '--name', at, ...asked];
      await dockerOk(current(), [...create, name('three'), 'cat', '/which']);
      // No output is read, since dockerd loses that of a short run once in a while.
      const file = await call(current().socketPath, 'GET', `/v1.51/containers/${at}/archive?path=/which`);
      assert.ok(file.body.toString('latin1').includes(`\0${expected.platform.architecture}\n\0`));
      type Container = { readonly Image: string; readonly ImageManifestDescriptor: { readonly digest: string } };
      const { Image, ImageManifestDescriptor } = await callJson<Container>(
        current().socketPath,
        'GET',
        `/v1.51/containers/${at}/json`,
      );
      assert.deepEqual([Image, ImageManifestDescriptor.digest], [three.digest, expected.digest]);
    }
    const create = await docker(current(), ['create', '--pull', 'never', '--platform', 'linux/s390x', name('three')]);
    assert.match(create.stderr, /does not provide the specified platform \(linux\/s390x\)/);
    const users = (await only(three.digest)).Manifests.map(({ ImageData }) => ImageData.Containers?.length ?? 0);
    assert.deepEqual(users, [1, 2, 0]);
    const tree = (await dockerOk(current(), ['image', 'ls', '--tree'])).split('\n');
    const row = (architecture: string): string => tree.find((line) => line.includes(`linux/${architecture}`)) ?? '';
    for (const architecture of ['arm64', 'amd64']) assert.match(row(architecture), /MB +[\d.]+MB +U/);
    assert.match(row('s390x'), / 0B +0B/);
    await dockerOk(current(), ['commit', 'arm64', 'made:1']);
    type Made = { readonly Architecture: string; readonly Parent: string };
    const { Architecture, Parent } = await callJson<Made>(current().socketPath, 'GET', '/v1.51/images/made:1/json');
    assert.deepEqual([Architecture, Parent], ['arm64', three.digest]);
    await engineOk(current(), ['rmi', 'made:1']);
  });
}

function sendAndUntag(current: () => Engine): void {
  const { name, refused, withTwo, saved, pullBoth } = requestsTo(current);

  test('save and push send all that is here, or one platform', async () => {
    const whole = inArchive(await saved());
    assert.deepEqual(whole.blobs, [...new Set([three.digest, ...blobsOf(amd), ...blobsOf(arm)])].sort());
    assert.deepEqual(whole.named, [three.digest]);
    const one = inArchive(await saved(`&platform=${platform('arm64')}`));
    assert.deepEqual(one, { blobs: blobsOf(arm).sort(), named: [arm.digest] });
    const missing = /^no suitable export target found: .* does not provide the specified platform \(linux\/s390x\)$/;
    await refused('GET', `/images/get?names=${name('three')}&platform=${platform('s390x')}`, 404, missing);
    await engineOk(current(), ['tag', name('three'), name('copy')]);
    // The one that suits this machine is pushed for an index of which something is missing.
    const part = await dockerOk(current(), ['push', name('copy')]);
    assert.match(part, new RegExp(`1: digest: ${amd.digest}`));
    assert.match(part, /only the available single-platform image was pushed/);
    const asked = await dockerOk(current(), ['push', '--platform', 'linux/arm64', name('copy')]);
    assert.match(asked, new RegExp(`1: digest: ${arm.digest}`));
    const failed = await docker(current(), ['push', '--platform', 'linux/s390x', name('copy')]);
    assert.match(failed.stderr, /does not provide the specified platform \(linux\/s390x\)/);
    await pullBoth('two');
    await engineOk(current(), ['tag', name('two'), name('both')]);
    assert.match(await dockerOk(current(), ['push', name('both')]), new RegExp(`1: digest: ${two.digest}`));
    const accept = { accept: two.mediaType };
    const pushed = await fetch(`${registry.url}/v2/both/manifests/1`, { headers: accept });
    assert.deepEqual(Buffer.from(await pushed.arrayBuffer()), two.manifest);
  });

  test('one of several tags goes alone', async () => {
    for (const repository of ['copy', 'both']) await engineOk(current(), ['rmi', name(repository)]);
    assert.deepEqual((await withTwo()).RepoTags, [name('three')]);
    await engineOk(current(), ['rmi', name('two')]);
  });
}

function loadAndRemove(current: () => Engine): void {
  const { name, list, only, inspect, refused, available, withTwo, saved } = requestsTo(current);

  test('what was saved is loaded with the same ID and all platforms', async () => {
    const [whole, one] = [await saved(), await saved(`&platform=${platform('arm64')}`)];
    for (const container of ['arm64', 'amd64', 'any']) await engineOk(current(), ['rm', container]);
    const forget = async (): Promise<void> => {
      await engineOk(current(), ['rmi', name('three')]);
      assert.deepEqual(await list(), []);
    };
    await forget();
    assert.deepEqual(await load(current(), whole), {
      lines: [`Loaded image: ${name('three')}`],
      error: undefined,
      layers: [],
    });
    await withTwo();
    const create = ['create', '--pull', 'never', '--platform', 'linux/arm64', name('three'), '/none'];
    const created = await dockerOk(current(), create);
    const file = await call(current().socketPath, 'GET', `/v1.51/containers/${created}/archive?path=/which`);
    assert.match(file.body.toString('latin1'), /\0arm64\n\0/);
    await engineOk(current(), ['rm', created]);
    assert.deepEqual(inArchive(await saved()), inArchive(whole));
    await forget();
    assert.equal((await load(current(), one)).error, undefined);
    assert.deepEqual(
      (await list()).map(({ Id, RepoTags }) => [Id, RepoTags]),
      [[arm.digest, [name('three')]]],
    );
    await forget();
    await load(current(), whole);
  });

  test('a platform goes when that is forced, and not without', async () => {
    const create = ['create', '--name', 'user', '--pull', 'never', '--platform', 'linux/arm64', '--network', 'none'];
    await dockerOk(current(), [...create, name('three'), 'cat', '/which']);
    const path = (architecture: string): string => `/images/${name('three')}?platforms=${platform(architecture)}`;
    await refused('DELETE', path('arm64'), 400, /^Content will be removed from all images referencing this variant\./);
    await refused('DELETE', `${path('s390x')}&force=1`, 404, /^failed to delete platform linux\/s390x for image /);
    await refused('DELETE', `/images/${name('three')}?platforms=x&force=1`, 400, /^failed to parse platform: /);
    const { status, text } = await call(current().socketPath, 'DELETE', `/v1.51${path('arm64')}&force=1`);
    assert.equal(status, 200, text);
    assert.deepEqual((JSON.parse(text) as unknown[])[0], { Deleted: arm.digest });
    const image = await only(three.digest);
    assert.deepEqual(available(image), [
      [arm.digest, false],
      [amd.digest, true],
      [other.digest, false],
    ]);
    assert.equal((await inspect()).Architecture, 'amd64');
    // A container of it has its files still.
    assert.equal(await engineOk(current(), ['start', '-a', 'user']), 'arm64');
    await engineOk(current(), ['rm', 'user']);
    await engineOk(current(), ['rmi', name('three')]);
    assert.deepEqual(await list(), []);
  });
}

/** Both engines answer these requests alike. */
function sharedTests(current: () => Engine): void {
  pullAndInspect(current);
  use(current);
  sendAndUntag(current);
  loadAndRemove(current);
  buildsOfPlatforms(() => ({ engine: current(), registry, base: `${registry.host}/two:1` }));
}

describe('dockerd', { skip: whyNoDockerd() }, () => {
  const own = new Cleanup();
  let engine: Engine;
  before(async () => {
    engine = await startOn(own, dockerd({ args: ['--feature', 'containerd-snapshotter=true'] }));
  });
  after(() => own.run());
  if (isTestingDockerd()) sharedTests(() => engine);
  else pullAndInspect(() => engine);
});

async function startOn(own: Cleanup, kind: EngineKind): Promise<Engine> {
  const engine = await Engine.start(kind);
  own.add(() => engine.close());
  return engine;
}

describe('this engine', () => {
  const own = new Cleanup();
  let engine: Engine;
  const ctr = (...args: string[]): string => {
    const socket = join(engine.dir, 'exec/supervisor/supervisor.sock');
    return execFileSync('ctr', ['--address', socket, '-n', 'engine', ...args], { encoding: 'utf8' });
  };
  const content = (): string[] => ctr('content', 'ls', '-q').split('\n').filter(Boolean).sort();
  const requests = requestsTo(() => engine);
  const name = (): string => requests.name('two');
  const removal = (architecture: string): string =>
    `/v1.51/images/${name()}?platforms=${platform(architecture)}&force=1`;
  before(async () => {
    engine = await startOn(own, engined({ args: ['--feature', 'supervisor-snapshotter'] }));
  });
  after(() => own.run());
  sharedTests(() => engine);

  test('content of a platform goes with it, also after a kill, and the last one takes the image along', async () => {
    await waitFor('the content to go', () => content().length === 0);
    await requests.pullBoth('two');
    const all = [two.digest, ...blobsOf(amd), ...blobsOf(arm)].sort();
    assert.deepEqual(content(), all);
    await engine.stop('SIGKILL');
    await engine.start();
    ctr('leases', 'create', '--id', 'any');
    ctr('leases', 'rm', '--sync', 'any');
    assert.deepEqual(content(), all);
    const container = await engineOk(engine, ['create', name(), 'cat', '/which']);
    // The daemon ends as soon as a record has gone: what is kept besides goes at the next start.
    const records = (): string[] => readdirSync(join(engine.dir, 'data/supervisor-snapshotter/image/content'));
    assert.equal(records().length, 2);
    const reply = call(engine.socketPath, 'DELETE', removal('arm64')).catch(() => undefined);
    await waitFor('the record to go', () => records().length === 1);
    await engine.stop('SIGKILL');
    await reply;
    await engine.start();
    const left = [two.digest, ...blobsOf(amd)].sort();
    await waitFor('the content to go', () => content().length === left.length);
    assert.deepEqual(content(), left);
    const image = await callJson<Inspected>(engine.socketPath, 'GET', `/v1.51/images/${name()}/json`);
    assert.deepEqual([image.Id, image.Architecture], [two.digest, 'amd64']);
    const prune = await call(
      engine.socketPath,
      'POST',
      `/images/prune?filters=${encodeURIComponent('{"dangling":["false"]}')}`,
    );
    assert.equal((JSON.parse(prune.text) as { ImagesDeleted: unknown }).ImagesDeleted, null);
    const { text } = await call(engine.socketPath, 'DELETE', removal('amd64'));
    assert.deepEqual(JSON.parse(text)[0], { Untagged: name() });
    assert.match((await attempt(engine, ['inspect', '--type', 'image', name()])).stderr, /No such image/i);
    assert.equal(await engineOk(engine, ['start', '-a', container]), 'amd64');
    await engineOk(engine, ['rm', container]);
    await waitFor('the content to go', () => content().length === 0);
    const { findings } = await callJson<{ findings: unknown }>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
    assert.deepEqual(findings, []);
    const snapshots = (): string[] => ctr('snapshot', 'ls').trim().split('\n').slice(1);
    // One without files stays, on which containers without an image stand.
    await waitFor('the snapshots to go', () => snapshots().length <= 1);
  });

  test('prune takes all platforms of an index', async () => {
    await requests.pullBoth('two');
    const all = encodeURIComponent('{"dangling":["false"]}');
    const { text } = await call(engine.socketPath, 'POST', `/images/prune?filters=${all}`);
    const { ImagesDeleted, SpaceReclaimed } = JSON.parse(text) as {
      ImagesDeleted: { Deleted?: string }[];
      SpaceReclaimed: number;
    };
    const deleted = ImagesDeleted.flatMap(({ Deleted }) => Deleted ?? []).sort();
    assert.deepEqual(deleted, [two.digest, ...[amd, arm].map(({ layers }) => layers[0]?.diffId ?? '')].sort());
    assert.ok(SpaceReclaimed > 2 * (amd.layers[0]?.tarSize ?? 0) * 0.9, String(SpaceReclaimed));
    await waitFor('the content to go', () => content().length === 0);
  });
});
