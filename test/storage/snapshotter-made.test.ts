/**
 * Images that are made here, in a daemon whose images are kept in the supervisor: each has the digest of its manifest
 * as ID, and that manifest is saved and pushed. Images of a data root from before this was so keep theirs.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { dockerOk } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, ociLayout } from '../support/image-archives.js';
import { buildImage, pushImage, sha256, tarOf } from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';

interface Inspected {
  readonly Id: string;
  readonly Parent: string;
  readonly RepoDigests: readonly string[];
  readonly Size: number;
  readonly Descriptor: { readonly digest: string; readonly size: number };
}
interface Listed {
  readonly Id: string;
  readonly Size: number;
  readonly Manifests: readonly { readonly Size: { readonly Content: number; readonly Total: number } }[];
}
interface Manifest {
  readonly config: { readonly digest: string; readonly size: number };
  readonly layers: readonly { readonly digest: string; readonly size: number }[];
}

const STORE = 'supervisor-snapshotter';
const TAGS = ['commit', 'import', 'build', 'classic'];

describe('with snapshots of the supervisor', () => {
  const cleanup = new Cleanup();
  let engine: Engine;
  let registry: SeededRegistry;
  const run = (...args: string[]): Promise<string> => engineOk(engine, ['run', '--network', 'none', ...args]);
  const at = (path: string): string => join(engine.dir, 'data', STORE, path);
  const ctr = (...args: string[]): string => ctrBytes(...args).toString();
  const ctrBytes = (...args: string[]): Buffer => {
    const socket = join(engine.dir, 'exec/supervisor/supervisor.sock');
    return execFileSync('ctr', ['--address', socket, '-n', 'engine', ...args], { maxBuffer: 64 << 20 });
  };
  const inspect = (name: string): Promise<Inspected> =>
    callJson<Inspected>(engine.socketPath, 'GET', `/images/${name}/json`);
  const nothingFound = async (): Promise<void> => {
    const { findings } = await callJson<{ findings: unknown }>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
    assert.deepEqual(findings, []);
  };
  const archived = async (...names: string[]): Promise<Buffer> =>
    (await call(engine.socketPath, 'GET', `/images/get?${names.map((name) => `names=${name}`).join('&')}`)).body;
  /** The digests that `index.json` of an archive has. */
  const digestsIn = (archive: Buffer): string[] => {
    const index = execFileSync('tar', ['-xO', 'index.json'], { input: archive, encoding: 'utf8' });
    const { manifests } = JSON.parse(index) as { readonly manifests: readonly { readonly digest: string }[] };
    return manifests.map(({ digest }) => digest).sort();
  };

  before(async () => {
    ({ engine, registry } = await startEngineWithRegistry(cleanup, engined({ args: ['--feature', STORE] })));
  });
  after(() => cleanup.run());

  /** Makes an image in each way there is, with the tags. */
  async function makeAll(): Promise<void> {
    const from = registry.reference;
    await run('--name', 'source', from, 'sh', '-c', 'echo made >/made');
    await engineOk(engine, ['commit', 'source', 'made:commit']);
    const tar = join(engine.dir, 'made.tar');
    await engineOk(engine, ['export', '-o', tar, 'source']);
    await engineOk(engine, ['import', tar, 'made:import']);
    const dockerfile = `FROM ${from}\nRUN echo made >/made\nENV a=b\n`;
    await dockerOk(engine, ['build', '-q', '-t', 'made:build', '-'], { input: dockerfile });
    const { status } = await call(engine.socketPath, 'POST', '/build?t=made:classic', {
      body: tarOf([{ path: 'Dockerfile', content: dockerfile }]),
      headers: { 'Content-Type': 'application/x-tar' },
    });
    assert.equal(status, 200);
    await engineOk(engine, ['rm', 'source']);
  }

  test('commit, import and builds make a manifest, and sizes count its content', async () => {
    const blobs = registry.image.layers.map(({ digest }) => digest);
    await makeAll();
    const list = await callJson<Listed[]>(engine.socketPath, 'GET', '/images/json?manifests=1');
    for (const tag of TAGS) {
      const image = await inspect(`made:${tag}`);
      const { config, layers } = JSON.parse(ctr('content', 'get', image.Id)) as Manifest;
      assert.deepEqual([image.RepoDigests, image.Descriptor.digest], [[`made@${image.Id}`], image.Id], tag);
      // The layers of the base are those of the registry.
      const below = layers.slice(0, -1).map(({ digest }) => digest);
      assert.deepEqual(below, tag === 'import' ? [] : blobs, tag);
      const content = [image.Descriptor, config, ...layers].reduce((sum, { size }) => sum + size, 0);
      assert.equal(image.Size, content, tag);
      const listed = list.find(({ Id }) => Id === image.Id);
      assert.deepEqual(listed?.Manifests[0]?.Size, { Content: content, Total: listed?.Size }, tag);
    }
  });

  test('that manifest is pushed and saved, and what is pulled or loaded from there has the same ID', async () => {
    const ids = new Map<string, string>();
    for (const tag of TAGS) {
      const name = `${registry.host}/made:${tag}`;
      const { Id } = await inspect(`made:${tag}`);
      ids.set(name, Id);
      await engineOk(engine, ['tag', `made:${tag}`, name]);
      assert.match(await engineOk(engine, ['push', name]), new RegExp(`${tag}: digest: ${Id} `));
    }
    const names = [...ids.keys()];
    const archive = await archived(...names);
    assert.deepEqual(digestsIn(archive), [...ids.values()].sort());
    const removeAll = (): Promise<string> => engineOk(engine, ['rmi', ...names]);
    const check = async (): Promise<void> => {
      for (const [name, id] of ids) assert.equal((await inspect(name)).Id, id, name);
    };
    const content = (): string[] => ctr('content', 'ls', '-q').split('\n').filter(Boolean);
    await engineOk(engine, ['rmi', ...TAGS.map((tag) => `made:${tag}`)]);
    await removeAll();
    // The image that was pulled is left: manifest, configuration, two layers.
    await waitFor('the content to go', () => content().length === 4);
    for (const name of names) await pullOk(engine, name);
    await check();
    await removeAll();
    assert.equal((await load(engine, archive)).error, undefined);
    await check();
    assert.deepEqual(digestsIn(await archived(...names)), [...ids.values()].sort());
    await removeAll();
    await waitFor('the content to go', () => content().length === 4);
    await nothingFound();
  });

  test('a manifest that names other layers than its image has misleads nobody', async () => {
    const [low, high] = registry.image.layers;
    assert.ok(low && high);
    // Both layers are here, so neither is fetched.
    const image = buildImage({
      layers: [
        { ...high, diffId: low.diffId },
        { ...low, diffId: high.diffId },
      ],
    });
    await pushImage(registry.url, 'lying', '1', image);
    const lying = `${registry.host}/lying:1`;
    await pullOk(engine, lying);
    await engineOk(engine, ['rmi', registry.reference]);
    await run('--name', 'lied-to', lying, 'touch', '/new');
    await engineOk(engine, ['commit', 'lied-to', 'honest:1']);
    const { Id } = await inspect('honest:1');
    const { config, layers } = JSON.parse(ctr('content', 'get', Id)) as Manifest;
    const { rootfs } = JSON.parse(ctr('content', 'get', config.digest)) as { readonly rootfs: { diff_ids: string[] } };
    const diffIds = layers.map(({ digest }) => sha256(gunzipSync(ctrBytes('content', 'get', digest))));
    assert.deepEqual(diffIds, rootfs.diff_ids);
    await engineOk(engine, ['rm', 'lied-to']);
    await engineOk(engine, ['rmi', 'honest:1', lying]);
    const isKept = (): boolean => ctr('content', 'ls', '-q').includes(image.digest);
    await waitFor('the pulled manifest to go', () => !isKept());
    await pullOk(engine, registry.reference);
    const name = 'docker.io/library/lying:2';
    assert.equal(
      (await load(engine, archiveOf(ociLayout(image, { 'io.containerd.image.name': name })))).error,
      undefined,
    );
    assert.equal((await inspect(name)).Id, image.digest);
    assert.ok(!isKept());
    await engineOk(engine, ['rmi', name]);
  });

  test('images from before they had manifests keep their IDs, and all goes on with them', async () => {
    await run('--name', 'before', registry.reference, 'sh', '-c', 'echo old >/old');
    await engineOk(engine, ['commit', 'before', 'before:1']);
    const { Id: id } = await inspect('before:1');
    const container = await engineOk(engine, ['create', '--name', 'of-before', 'before:1', 'cat', '/old']);
    await engine.stop();
    const oldId = makeOld(id.slice('sha256:'.length), at(`containers/${container}/container.json`));
    await engine.start();
    assert.equal((await inspect('before:1')).Id, oldId);
    assert.equal(await engineOk(engine, ['inspect', '-f', '{{.Image}}', 'of-before']), oldId);
    assert.equal(await engineOk(engine, ['start', '-a', 'of-before']), 'old');
    assert.equal(await run('--rm', 'before:1', 'cat', '/old'), 'old');
    await engineOk(engine, ['commit', 'of-before', 'next:1']);
    const next = await inspect('next:1');
    assert.deepEqual([next.Parent, next.Descriptor.digest], [oldId, next.Id]);
    assert.equal(await run('--rm', 'next:1', 'cat', '/old'), 'old');
    // The image that comes in its place has the ID of a manifest.
    const archive = await archived('before:1');
    await engineOk(engine, ['rm', 'before', 'of-before']);
    assert.equal((await load(engine, archive)).error, undefined);
    assert.deepEqual([(await inspect('before:1')).Id], digestsIn(archive));
    await engineOk(engine, ['rmi', 'next:1', 'before:1']);
    assert.equal((await call(engine.socketPath, 'GET', `/images/${oldId}/json`)).status, 404);
    await nothingFound();
  });

  /** Turns the records of an image into what a daemon wrote that gave no manifests. Returns its ID there. */
  function makeOld(hex: string, container: string): string {
    const image = (name: string): string => at(join('image', name));
    const record = JSON.parse(readFileSync(image(`metadata/${hex}.json`), 'utf8')) as {
      readonly value: { config?: string; published?: unknown };
    };
    const config = record.value.config ?? assert.fail('the ID is not that of a manifest');
    delete record.value.config;
    delete record.value.published;
    const oldHex = config.slice('sha256:'.length);
    renameSync(image(`content/${hex}`), image(`content/${oldHex}`));
    rmSync(image(`metadata/${hex}.json`));
    writeFileSync(image(`metadata/${oldHex}.json`), JSON.stringify(record));
    for (const path of [image('references.json'), container])
      writeFileSync(path, readFileSync(path, 'utf8').replaceAll(hex, oldHex));
    return config;
  }
});
