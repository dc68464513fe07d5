/** Single answers of the API that clients came to rely on, each as the known engine gives it. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, RawConnection } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { archiveOf, load } from '../support/image-archives.js';
import { waitFor } from '../support/wait.js';

const PATIENCE_MS = 120_000;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithRegistry(cleanup, engined({ args: ['--experimental'] })));
  cleanup.add(() => engineOk(engine, ['rm', '-f', 'web']));
  await engineOk(engine, ['run', '-d', '--name', 'web', '--network', 'none', image, 'sleep', '100000']);
});
after(() => cleanup.run());

const post = (path: string, json?: unknown): ReturnType<typeof call> =>
  call(engine.socketPath, 'POST', path, json === undefined ? {} : { json });
const message = (text: string): string => (JSON.parse(text) as { message: string }).message;

async function createExec(container: string, body: object): Promise<string> {
  return (
    await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${container}/exec`, { json: body }, 201)
  ).Id;
}

test('parameters that have no effect are taken, and a checkpoint is not there', async () => {
  const { Id } = await callJson<{ Id: string; Warnings: unknown }>(
    engine.socketPath,
    'POST',
    '/containers/create',
    { json: { Image: image, Cmd: ['true'] } },
    201,
  );
  const checkpoint = await post(`/containers/${Id}/start?checkpoint=one`);
  assert.deepEqual([checkpoint.status, message(checkpoint.text)], [501, 'checkpoint: this engine has no checkpoints']);
  assert.equal((await post(`/containers/${Id}/start?detachKeys=ctrl-a`)).status, 204);
  await engineOk(engine, ['rm', '-f', Id]);
  const [first] = await callJson<{ RepoDigests: string[] }[]>(engine.socketPath, 'GET', '/images/json?digests=0');
  assert.equal(first?.RepoDigests.length, 1);
  assert.equal((await call(engine.socketPath, 'GET', '/networks/bridge?verbose=1')).status, 200);
});

test('GET /networks/ is the list', async () => {
  const networks = await callJson<{ Name: string }[]>(engine.socketPath, 'GET', '/v1.44/networks/');
  assert.ok(networks.some(({ Name }) => Name === 'bridge'));
});

test('an empty command is found out at the start', async () => {
  const { Id } = await callJson<{ Id: string }>(
    engine.socketPath,
    'POST',
    '/containers/create',
    { json: { Image: image, Cmd: [''] } },
    201,
  );
  assert.equal((await post(`/containers/${Id}/start`)).status, 400);
  await engineOk(engine, ['rm', Id]);
});

test('exec: a bad body comes before an unknown exec, and a container that has ended before its terminal', async () => {
  assert.equal((await post('/exec/nope/start', { Detach: 'x' })).status, 400);
  assert.equal((await post('/exec/nope/start', {})).status, 404);
  assert.equal((await post('/exec/nope/resize?h=1&w=1')).status, 404);
  const id = await engineOk(engine, ['run', '-d', '--network', 'none', image, 'sleep', '100000']);
  const exec = await createExec(id, { Cmd: ['sleep', '100000'], Tty: true });
  assert.equal((await post(`/exec/${exec}/start`, { Detach: true })).status, 200);
  await engineOk(engine, ['kill', id]);
  const resized = await post(`/exec/${exec}/resize?h=10&w=10`);
  assert.deepEqual([resized.status, message(resized.text)], [409, `container ${id} is not running`]);
  await engineOk(engine, ['rm', id]);
});

test('detach keys end an exec, also in pieces, and nothing that is typed behind them reaches the process', async () => {
  const id = await createExec('web', {
    Cmd: ['sh', '-c', 'stty -echo -icanon; echo ready; cat > /tmp/typed'],
    Tty: true,
    AttachStdin: true,
    AttachStdout: true,
    DetachKeys: 'ctrl-a,b',
  });
  const connection = await RawConnection.open(engine.socketPath);
  const body = '{"Tty":true}';
  connection.write(
    `POST /exec/${id}/start HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
  await connection.readThrough('ready', PATIENCE_MS);
  connection.write('before\x01');
  const typed = (): Promise<string> => engineOk(engine, ['exec', 'web', 'cat', '/tmp/typed']);
  await waitFor('what was typed', async () => (await typed()) === 'before', PATIENCE_MS);
  connection.write('bbehind');
  await connection.readToEnd(PATIENCE_MS);
  connection.write('later');
  connection.halfClose();
  assert.equal(await typed(), 'before');
  const { Running } = await callJson<{ Running: boolean }>(engine.socketPath, 'GET', `/exec/${id}/json`);
  assert.equal(Running, true);
  connection.close();
});

test('an import from the body says nothing but its outcome', async () => {
  const archive = tarOf([{ path: 'file', content: 'x'.repeat(3_000_000) }]);
  const reply = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=imported', { body: archive });
  assert.equal(reply.status, 200, reply.text);
  assert.match(reply.text, /^\{"status":"sha256:[0-9a-f]{64}"\}\r\n$/);
  const broken = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=imported', {
    body: archive.subarray(0, 2_000_000),
  });
  assert.ok(broken.status >= 400, `${broken.status} ${broken.text}`);
  await engineOk(engine, ['rmi', 'imported']);
});

test('an image without layers is loaded; a saved image has one platform', async () => {
  const config = JSON.stringify({
    architecture: 'amd64',
    os: 'linux',
    config: { Cmd: ['none'] },
    rootfs: { type: 'layers', diff_ids: null },
  });
  const name = createHash('sha256').update(config).digest('hex');
  const manifest = JSON.stringify([{ Config: `${name}.json`, RepoTags: ['nothing:1'], Layers: null }]);
  const loaded = await load(
    engine,
    archiveOf([
      { path: `${name}.json`, content: config },
      { path: 'manifest.json', content: manifest },
    ]),
  );
  assert.deepEqual([loaded.error, loaded.lines], [undefined, ['Loaded image: nothing:1']]);
  assert.equal(await engineOk(engine, ['image', 'inspect', '-f', '{{.Id}}', 'nothing:1']), `sha256:${name}`);
  await engineOk(engine, ['rm', await engineOk(engine, ['create', 'nothing:1'])]);
  const platform = encodeURIComponent('{"os":"linux","architecture":"amd64"}');
  const twice = await call(
    engine.socketPath,
    'GET',
    `/v1.48/images/nothing:1/get?platform=${platform}&platform=${platform}`,
  );
  assert.deepEqual([twice.status, message(twice.text)], [400, 'multiple platform parameters not supported']);
  await engineOk(engine, ['rmi', 'nothing:1']);
});
