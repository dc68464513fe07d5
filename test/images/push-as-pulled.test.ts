/** A push sends the blobs that were pulled, while they are there and whole. */
import assert from 'node:assert/strict';
import { readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { startCuttingProxy } from '../support/cutting-proxy.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineUnderTest } from '../support/engined.js';
import { callJson, jsonLines, open } from '../support/http.js';
import { type BuiltImage, buildImage, generatedLayer, pushImage } from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';

interface Manifest {
  readonly config: { readonly digest: string };
  readonly layers: readonly { readonly digest: string; readonly mediaType: string; readonly size: number }[];
}

interface Usage {
  readonly LayersSize: number;
  readonly DataRoot: { readonly Kinds: readonly { readonly Kind: string }[] };
}

const cleanup = new Cleanup();
let engine: Engine;
let source: TestRegistry;
let image: BuiltImage;
let pulled: string;

before(async () => {
  source = await startRegistry();
  cleanup.add(() => source.stop());
  engine = await startEngineUnderTest();
  cleanup.add(() => engine.close());
  image = buildImage({
    layers: [
      generatedLayer({ root: 'low', bytes: 3 << 20, files: 60, seed: 5 }),
      generatedLayer({ root: 'high', bytes: 2 << 20, files: 20, seed: 6 }),
    ],
  });
  await pushImage(source.url, 'team/app', 'v1', image);
  pulled = `${source.host}/team/app:v1`;
});
beforeEach(() => pullOk(engine, pulled));
after(() => cleanup.run());

const dir = (): string => join(engine.dir, 'data/image/blobs');
/** Returns the file that holds a layer's blob. */
const fileOf = async (layer: number): Promise<string> => {
  const digest = JSON.parse(image.manifest.toString()) as Manifest;
  const name = (await readdir(dir())).find((one) => one.endsWith(digest.layers[layer]?.digest.slice(7) ?? '-'));
  assert.ok(name, 'the blob is kept');
  return join(dir(), name);
};

/** Pushes to another registry. Returns the manifest that is there then. */
async function pushed(host: string, registry: TestRegistry): Promise<Manifest> {
  await engineOk(engine, ['tag', pulled, `${host}/copy:v1`]);
  const reply = await open(engine.socketPath, 'POST', `/images/${host}/copy/push?tag=v1`, {
    headers: { 'X-Registry-Auth': 'e30=' },
  });
  let last: { error?: string; aux?: unknown } = {};
  for await (const message of jsonLines<typeof last>(reply.message)) last = message;
  assert.ok(last.aux, JSON.stringify(last));
  const found = await fetch(`${registry.url}/v2/copy/manifests/v1`, { headers: { accept: image.mediaType } });
  await engineOk(engine, ['rmi', `${host}/copy:v1`]);
  return (await found.json()) as Manifest;
}

async function registryFor(t: { after(step: () => Promise<void>): void }): Promise<TestRegistry> {
  const registry = await startRegistry();
  t.after(() => registry.stop());
  return registry;
}

const original = (): Manifest => JSON.parse(image.manifest.toString()) as Manifest;

test('another registry gets the very blobs, also when the upload breaks on its way', async (t) => {
  const registry = await registryFor(t);
  assert.deepEqual((await pushed(registry.host, registry)).layers, original().layers);
  const second = await registryFor(t);
  const proxy = await startCuttingProxy(second.host, { up: 1 << 20, maxCuts: 1 });
  t.after(() => proxy.stop());
  assert.deepEqual((await pushed(proxy.host, second)).layers, original().layers);
  assert.equal(proxy.cuts, 1);
});

test('a blob that was changed or cut off on the disk is not sent: the layer is compressed', async (t) => {
  const changed = await fileOf(0);
  const bytes = await readFile(changed);
  bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1;
  await writeFile(changed, bytes);
  await truncate(await fileOf(1), 1000);
  const registry = await registryFor(t);
  const manifest = await pushed(registry.host, registry);
  assert.equal(manifest.config.digest, image.id);
  for (const [index, { digest }] of manifest.layers.entries())
    assert.notEqual(digest, original().layers[index]?.digest);
  assert.deepEqual(await readdir(dir()), [], 'what is damaged is removed');
  await engineOk(engine, ['rmi', pulled]);
  await pullOk(engine, `${registry.host}/copy:v1`);
  await engineOk(engine, ['rmi', `${registry.host}/copy:v1`]);
});

test('the blobs count as images on the disk, and go with their layers', async () => {
  const usage = (): Promise<Usage> => callJson<Usage>(engine.socketPath, 'GET', '/system/df?type=image');
  // The layers that other tests have removed count until they are deleted, some time later.
  const used = await waitFor(
    () => 'the trash to be empty',
    async () => {
      const { LayersSize, DataRoot } = await usage();
      return !DataRoot.Kinds.some(({ Kind }) => Kind === 'trash') && LayersSize;
    },
  );
  const file = await fileOf(0);
  const { blocks } = await stat(file);
  await rm(file);
  assert.equal(used - (await usage()).LayersSize, blocks * 512);
  await engineOk(engine, ['rmi', pulled]);
  await waitFor(
    () => 'the other blob to go',
    async () => (await readdir(dir())).length === 0,
  );
});
