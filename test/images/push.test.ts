/** Pushes into real registries, read back with skopeo and pulled again. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { gunzipSync } from 'node:zlib';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { startCuttingProxy } from '../support/cutting-proxy.js';
import type { Engine } from '../support/engine.js';
import { startEngineUnderTest } from '../support/engined.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import {
  type BuiltImage,
  buildImage,
  buildLayer,
  everyFileType,
  generatedLayer,
  pushImage,
} from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { startTokenRegistry, USER } from '../support/token-registry.js';
import { waitFor } from '../support/wait.js';

interface Message {
  readonly status?: string;
  readonly id?: string;
  readonly error?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly aux?: { readonly Tag: string; readonly Digest: string; readonly Size: number };
}

const cleanup = new Cleanup();
let engine: Engine;
let source: TestRegistry;
let image: BuiltImage;
/** Name of the pulled image. */
let pulled: string;

before(async () => {
  source = await startRegistry();
  cleanup.add(() => source.stop());
  engine = await startEngineUnderTest();
  cleanup.add(() => engine.close());
  image = buildImage({
    layers: [buildLayer(everyFileType()), generatedLayer({ root: 'data', bytes: 3 << 20, files: 60, seed: 5 })],
  });
  await pushImage(source.url, 'team/app', 'v1', image);
  pulled = `${source.host}/team/app:v1`;
  await pullOk(engine, pulled);
  // As for layers of builds: without the blobs that were pulled they are made from the files.
  await rm(join(engine.dir, 'data/image/blobs'), { recursive: true });
});
after(() => cleanup.run());

const ANONYMOUS = { 'X-Registry-Auth': 'e30=' };

async function push(name: string, tag: string, headers: Record<string, string> = ANONYMOUS): Promise<Message[]> {
  const reply = await open(engine.socketPath, 'POST', `/images/${name}/push?tag=${tag}`, { headers });
  assert.equal(reply.status, 200);
  const messages: Message[] = [];
  for await (const message of jsonLines<Message>(reply.message)) messages.push(message);
  return messages;
}

async function registryFor(t: { after(step: () => Promise<void>): void }): Promise<TestRegistry> {
  const registry = await startRegistry();
  t.after(() => registry.stop());
  return registry;
}

const tag = async (reference: string): Promise<void> => void (await engineOk(engine, ['tag', pulled, reference]));
const statuses = (messages: readonly Message[], diffId: string): string[] =>
  messages
    .filter(({ id }) => id === diffId.slice(7, 19))
    .map(({ status }) => status ?? '')
    .filter((status, index, all) => status !== all[index - 1]);

/** An independent client finds this in the registry: the configuration's digest, and the diff ID of every layer. */
async function readBack(
  reference: string,
): Promise<{ readonly id: string; readonly diffIds: string[]; readonly digest: string; readonly mediaType: string }> {
  const dir = await mkdtemp(join(tmpdir(), 'engined-skopeo-'));
  try {
    await promisify(execFile)('skopeo', [
      'copy',
      '-q',
      '--src-tls-verify=false',
      '--insecure-policy',
      `docker://${reference}`,
      `dir:${dir}`,
    ]);
    const bytes = await readFile(join(dir, 'manifest.json'));
    const manifest = JSON.parse(bytes.toString()) as {
      mediaType: string;
      config: { digest: string };
      layers: { digest: string }[];
    };
    const sha256 = (data: Buffer): string => `sha256:${createHash('sha256').update(data).digest('hex')}`;
    const config = await readFile(join(dir, manifest.config.digest.slice(7)));
    const diffIds = await Promise.all(
      manifest.layers.map(async ({ digest }) => sha256(gunzipSync(await readFile(join(dir, digest.slice(7)))))),
    );
    return { id: sha256(config), diffIds, digest: sha256(bytes), mediaType: manifest.mediaType };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

test('layers are rebuilt bit by bit, and the image comes back with its ID', async (t) => {
  const registry = await registryFor(t);
  const name = `${registry.host}/made/here`;
  await tag(`${name}:v2`);
  const since = Math.floor(Date.now() / 1000);
  const messages = await push(name, 'v2');
  assert.deepEqual(messages[0], { status: `The push refers to repository [${name}]` });
  for (const { diffId } of image.layers)
    assert.deepEqual(
      statuses(messages, diffId).filter((status) => status !== 'Waiting'),
      ['Preparing', 'Pushing', 'Pushed'],
    );
  const aux = messages.at(-1)?.aux;
  assert.ok(aux, JSON.stringify(messages.at(-1)));
  assert.equal(messages.at(-2)?.status, `v2: digest: ${aux.Digest} size: ${aux.Size}`);

  const found = await readBack(`${name}:v2`);
  assert.deepEqual(
    { id: found.id, diffIds: found.diffIds, digest: found.digest },
    { id: image.id, diffIds: image.layers.map(({ diffId }) => diffId), digest: aux.Digest },
  );
  const { RepoDigests } = await callJson<{ RepoDigests: string[] }>(
    engine.socketPath,
    'GET',
    `/images/${name}:v2/json`,
  );
  assert.ok(RepoDigests.includes(`${name}@${aux.Digest}`));
  const events = await call(
    engine.socketPath,
    'GET',
    `/events?since=${since}&until=${Math.ceil(Date.now() / 1000) + 1}` +
      `&filters=${encodeURIComponent('{"event":["push"]}')}`,
  );
  const event = JSON.parse(events.text.split('\n')[0] ?? '') as {
    Actor: { ID: string; Attributes: Record<string, string> };
  };
  assert.equal(event.Actor.ID, `${name}:v2`);
  assert.equal(event.Actor.Attributes['name'], name);
});

test('what a registry has is not sent: neither again nor from another of its repositories', async (t) => {
  const again = await registryFor(t);
  await tag(`${again.host}/one:v2`);
  await push(`${again.host}/one`, 'v2');
  const second = await push(`${again.host}/one`, 'v2');
  for (const { diffId } of image.layers)
    assert.deepEqual(statuses(second, diffId), ['Preparing', 'Layer already exists']);

  await tag(`${source.host}/other/place:v2`);
  const mounted = await push(`${source.host}/other/place`, 'v2');
  for (const { diffId } of image.layers)
    assert.deepEqual(statuses(mounted, diffId), ['Preparing', 'Mounted from team/app']);
  assert.equal((await readBack(`${source.host}/other/place:v2`)).id, image.id);
});

test('the CLI pushes one tag and all tags', async (t) => {
  const registry = await registryFor(t);
  for (const one of ['a', 'b']) await tag(`${registry.host}/many:${one}`);
  const first = await engineOk(engine, ['push', `${registry.host}/many:a`]);
  assert.match(first, /a: digest: sha256:[0-9a-f]{64} size: \d+$/);
  const all = await engineOk(engine, ['push', '-a', `${registry.host}/many`]);
  assert.match(all, /a: digest: sha256:[\s\S]*b: digest: sha256:/);
  const { tags } = (await (await fetch(`${registry.url}/v2/many/tags/list`)).json()) as { tags: string[] };
  assert.deepEqual(tags.sort(), ['a', 'b']);
});

test('what is not here or makes no sense is refused in the known words', async () => {
  const refused = async (reference: string): Promise<string> =>
    (await docker(engine, ['push', reference])).stderr.trim();
  assert.equal(
    await refused(`${source.host}/unknown:v1`),
    `An image does not exist locally with the tag: ${source.host}/unknown`,
  );
  assert.equal(await refused(`${source.host}/team/app:v9`), `tag does not exist: ${source.host}/team/app:v9`);
  const missing = await call(engine.socketPath, 'POST', `/images/${source.host}/team/app/push?tag=v1`);
  assert.equal(missing.status, 400);
  assert.match(missing.text, /bad parameters and missing X-Registry-Auth: /i);
  for (const [name, one] of [
    ['UPPER', 'v1'],
    ['team/app', 'not a tag'],
  ] as const) {
    const reply = await call(engine.socketPath, 'POST', `/images/${name}/push?tag=${encodeURIComponent(one)}`, {
      headers: ANONYMOUS,
    });
    // The reference engine says 500 where it parses the name late.
    assert.ok(engine.name === 'dockerd' ? reply.status >= 400 : reply.status === 400, reply.text);
  }
  await engineOk(engine, ['tag', pulled, '127.0.0.1:1/nobody/listens:v1']);
  assert.match((await push('127.0.0.1:1/nobody/listens', 'v1')).at(-1)?.error ?? '', /connection refused/);
});

test('tokens are asked for with the rights of a push; without credentials it is denied', async (t) => {
  const gate = await startTokenRegistry();
  t.after(() => gate.stop());
  for (const repository of ['ns/app', 'ns/copy']) await tag(`${gate.host}/${repository}:v1`);
  const auth = {
    'X-Registry-Auth': Buffer.from(JSON.stringify(USER)).toString('base64').replaceAll('+', '-').replaceAll('/', '_'),
  };
  const ended = await push(`${gate.host}/ns/app`, 'v1', auth);
  assert.ok(ended.at(-1)?.aux, JSON.stringify(ended.at(-1)));
  assert.ok(
    gate.issued.some((scopes) => scopes.length === 1 && scopes[0] === 'repository:ns/app:pull,push'),
    JSON.stringify(gate.issued),
  );
  const mounted = await push(`${gate.host}/ns/copy`, 'v1', auth);
  for (const { diffId } of image.layers) assert.ok(statuses(mounted, diffId).includes('Mounted from ns/app'));
  assert.ok(
    gate.issued.some(
      (scopes) => scopes.includes('repository:ns/copy:pull,push') && scopes.includes('repository:ns/app:pull'),
    ),
    JSON.stringify(gate.issued),
  );
  assert.match(
    (await push(`${gate.host}/ns/app`, 'v1')).at(-1)?.error ?? '',
    /unauthorized|denied|no basic auth credentials/,
  );
});

// From here on what the reference engine does not have.
const own = { skip: process.env['ENGINE_UNDER_TEST'] === 'dockerd' ? 'does not do that' : false };

test('an image that came in the OCI format with zstd goes on so', own, async () => {
  const modern = buildImage({
    format: 'oci',
    layers: [buildLayer(everyFileType(), 'zstd'), buildLayer([{ path: 'f', content: 'plain' }], 'none')],
  });
  await pushImage(source.url, 'modern', 'v1', modern);
  await pullOk(engine, `${source.host}/modern:v1`);
  await engineOk(engine, ['tag', `${source.host}/modern:v1`, `${source.host}/modern-too:v1`]);
  const ended = (await push(`${source.host}/modern-too`, 'v1')).at(-1)?.aux;
  assert.ok(ended);
  const reply = await fetch(`${source.url}/v2/modern-too/manifests/v1`, { headers: { accept: modern.mediaType } });
  const manifest = (await reply.json()) as { mediaType: string; config: { digest: string }; layers: unknown[] };
  const original = JSON.parse(modern.manifest.toString()) as typeof manifest;
  assert.deepEqual(manifest, original, 'the same blobs under the same types');
});

test('a registry that does not take schema 2 gets the OCI format', own, async (t) => {
  const registry = await registryFor(t);
  const gate = createServer((incoming, response) => {
    if (
      incoming.method === 'PUT' &&
      incoming.headers['content-type'] === 'application/vnd.docker.distribution.manifest.v2+json'
    ) {
      incoming.resume();
      return void response
        .writeHead(415, { 'content-type': 'application/json' })
        .end('{"errors":[{"code":"MANIFEST_INVALID","message":"only OCI here"}]}');
    }
    const inner = request(
      `${registry.url}${incoming.url}`,
      { method: incoming.method, headers: incoming.headers, agent: false },
      (reply) => {
        response.writeHead(reply.statusCode ?? 500, reply.headers);
        reply.pipe(response);
      },
    );
    return void incoming.pipe(inner);
  });
  await new Promise<void>((resolve) => gate.listen(0, '127.0.0.1', resolve));
  t.after(async () => void gate.close());
  const name = `127.0.0.1:${(gate.address() as AddressInfo).port}/picky`;
  await tag(`${name}:v1`);
  assert.ok((await push(name, 'v1')).at(-1)?.aux);
  const found = await readBack(`${registry.host}/picky:v1`);
  assert.deepEqual([found.mediaType, found.id], ['application/vnd.oci.image.manifest.v1+json', image.id]);
});

test('an upload that breaks goes on where it stood', own, async (t) => {
  const registry = await registryFor(t);
  const proxy = await startCuttingProxy(registry.host, { up: 1 << 20, maxCuts: 1 });
  t.after(() => proxy.stop());
  const name = `${proxy.host}/broken`;
  await tag(`${name}:v1`);
  const messages = await push(name, 'v1');
  assert.ok(messages.at(-1)?.aux, JSON.stringify(messages.at(-1)));
  assert.ok(proxy.cuts > 0);
  assert.ok(messages.some(({ status }) => /^Retrying in \d+ seconds?$/.test(status ?? '')));
  let last = 0;
  const large = image.layers[1]?.diffId.slice(7, 19);
  for (const { id, progressDetail } of messages) {
    if (id !== large || progressDetail?.current === undefined) continue;
    assert.ok(progressDetail.current >= last && progressDetail.current <= (progressDetail.total ?? 0));
    last = progressDetail.current;
  }
  assert.deepEqual(
    (await readBack(`${registry.host}/broken:v1`)).diffIds,
    image.layers.map(({ diffId }) => diffId),
  );
});

test(
  'an upload that fails is tried again, whatever max-download-attempts says; no more than max-concurrent-uploads run',
  own,
  async (t) => {
    const registry = await registryFor(t);
    let [open, most, failures] = [0, 0, 0];
    let letGo: () => void = () => undefined;
    const gone = new Promise<void>((resolve) => (letGo = resolve));
    const gate = createServer((incoming, outgoing) => {
      const forward = (): void => {
        const headers = { ...incoming.headers, host: registry.host };
        const inner = request(
          `${registry.url}${incoming.url}`,
          { method: incoming.method ?? 'GET', headers },
          (reply) => {
            outgoing.writeHead(reply.statusCode ?? 500, reply.headers);
            reply.pipe(outgoing);
          },
        );
        inner.on('error', () => outgoing.destroy());
        incoming.pipe(inner);
      };
      if (incoming.method !== 'PATCH' && incoming.method !== 'PUT') return forward();
      most = Math.max(most, ++open);
      outgoing.once('close', () => open--);
      // One of the uploads fails once. The others wait until it is known how many run at a time.
      if (failures++ === 0) return void incoming.resume().once('end', () => outgoing.writeHead(500).end());
      return void gone.then(forward);
    });
    await new Promise<void>((resolve) => gate.listen(0, '127.0.0.1', resolve));
    t.after(async () => {
      letGo();
      gate.closeAllConnections();
      gate.close();
      await writeFile(join(engine.dir, 'daemon.json'), '{}');
      await callJson(engine.socketPath, 'POST', '/engine/config/reload');
    });
    await writeFile(
      join(engine.dir, 'daemon.json'),
      JSON.stringify({ 'max-download-attempts': 1, 'max-concurrent-uploads': 2 }),
    );
    await callJson(engine.socketPath, 'POST', '/engine/config/reload');
    const layers = [1, 2, 3, 4].map((seed) => buildLayer([{ path: `f${seed}`, content: `layer ${seed}` }]));
    await pushImage(source.url, 'team/four', 'v1', buildImage({ layers }));
    await pullOk(engine, `${source.host}/team/four:v1`);
    const name = `127.0.0.1:${(gate.address() as AddressInfo).port}/four`;
    await engineOk(engine, ['tag', `${source.host}/team/four:v1`, `${name}:v1`]);
    const pushed = push(name, 'v1');
    await waitFor(
      () => `two uploads at a time: ${open} of ${failures}`,
      () => open === 2 && failures > 2,
      60_000,
    );
    letGo();
    const messages = await pushed;
    assert.ok(messages.at(-1)?.aux, JSON.stringify(messages.at(-1)));
    assert.equal(most, 2);
    assert.ok(messages.some(({ status }) => status === 'Waiting'));
  },
);

test('a client that leaves ends the push, and the next one does it', own, async (t) => {
  const registry = await registryFor(t);
  const name = `${registry.host}/left`;
  await tag(`${name}:v1`);
  const reply = await open(engine.socketPath, 'POST', `/images/${name}/push?tag=v1`, { headers: ANONYMOUS });
  for await (const { status } of jsonLines<Message>(reply.message)) if (status === 'Pushing') break;
  reply.close();
  const ended = await waitFor('a push that works again', async () => (await push(name, 'v1')).at(-1)?.aux);
  assert.equal((await readBack(`${name}:v1`)).digest, ended.Digest);
});

test('a daemon that is killed in the middle pushes again after its start', own, async (t) => {
  const registry = await registryFor(t);
  const name = `${registry.host}/killed`;
  await tag(`${name}:v1`);
  const reply = await open(engine.socketPath, 'POST', `/images/${name}/push?tag=v1`, { headers: ANONYMOUS });
  reply.message.on('error', () => undefined);
  await new Promise((resolve) => reply.message.once('data', resolve));
  await engine.stop('SIGKILL');
  await engine.start();
  assert.ok((await push(name, 'v1')).at(-1)?.aux);
  const mounted = await push(`${source.host}/team/app`, 'v1');
  for (const { diffId } of image.layers)
    assert.deepEqual(
      statuses(mounted, diffId),
      ['Preparing', 'Layer already exists'],
      'what is known of blobs survives',
    );
});
