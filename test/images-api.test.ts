/** The image endpoints of a real daemon: shapes by version, filters, import, prune, commit. */
import assert from 'node:assert/strict';
import { gzipSync } from 'node:zlib';
import { after, before, test } from 'node:test';
import { startSeededRegistry, type SeededRegistry } from './support/busybox-image.js';
import { Cleanup } from './support/cleanup.js';
import { dockerOk } from './support/cli.js';
import type { Engine } from './support/engine.js';
import { startEngineUnderTest } from './support/engined.js';
import { call, callJson } from './support/http.js';
import { busyboxEntries, tarOf } from './support/image-builder.js';
import { pullOk } from './support/pulls.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;

before(async () => {
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  engine = await startEngineUnderTest();
  cleanup.add(() => engine.close());
  await pullOk(engine, registry.reference);
});
after(() => cleanup.run());

type Json = Record<string, unknown>;
const get = <T = Json>(path: string): Promise<T> => callJson<T>(engine.socketPath, 'GET', path);
const filters = (value: unknown): string => `filters=${encodeURIComponent(JSON.stringify(value))}`;

async function refused(status: number, message: RegExp, method: string, path: string): Promise<void> {
  const reply = await call(engine.socketPath, method, path);
  assert.equal(reply.status, status, `${method} ${path}: ${reply.text}`);
  assert.match((JSON.parse(reply.text) as { message: string }).message, message);
}

test('the list has the fields of each version', async () => {
  const [newest] = await get<Json[]>('/v1.49/images/json');
  assert.ok(newest);
  assert.deepEqual(Object.keys(newest).sort(), ['Containers', 'Created', 'Id', 'Labels', 'ParentId', 'RepoDigests', 'RepoTags', 'SharedSize', 'Size']);
  assert.equal(newest['Id'], registry.image.id);
  assert.deepEqual(newest['RepoTags'], [registry.reference]);
  assert.equal(newest['Created'], Math.floor(Date.parse('2024-01-02T03:04:05Z') / 1000));
  assert.equal(newest['SharedSize'], -1);
  const [old] = await get<Json[]>('/v1.24/images/json');
  assert.equal(old?.['VirtualSize'], old?.['Size']);
  const [shared] = await get<Json[]>('/v1.49/images/json?shared-size=1');
  assert.equal(shared?.['SharedSize'], 0);
});

test('filters: both forms, unknown keys, names that are not there', async () => {
  const ids = async (query: string): Promise<unknown[]> => (await get<Json[]>(`/v1.49/images/json?${query}`)).map(({ Id }) => Id);
  assert.deepEqual(await ids(filters({ label: { 'flavour=plain': true } })), [registry.image.id]);
  assert.deepEqual(await ids(filters({ label: ['flavour', 'missing'] })), []);
  assert.deepEqual(await ids(filters({ reference: [`${registry.host}/*/busybox`] })), [registry.image.id]);
  assert.deepEqual(await ids(filters({ dangling: ['true'] })), []);
  assert.deepEqual(await ids(filters({ until: ['1h'] })), [registry.image.id]);
  await refused(400, /invalid filter 'bogus'/, 'GET', `/images/json?${filters({ bogus: ['1'] })}`);
  await refused(400, /invalid filter 'dangling=\[perhaps\]'/, 'GET', `/images/json?${filters({ dangling: ['perhaps'] })}`);
  await refused(404, /No such image: nothing:latest/, 'GET', `/images/json?${filters({ before: ['nothing'] })}`);
});

test('inspect has the fields of each version', async () => {
  const now = await get(`/v1.49/images/${registry.reference}/json`);
  assert.equal(now['Id'], registry.image.id);
  assert.equal(now['Created'], '2024-01-02T03:04:05.678901234Z');
  assert.deepEqual(now['RootFS'], { Type: 'layers', Layers: registry.image.layers.map(({ diffId }) => diffId) });
  assert.ok(!('VirtualSize' in now) && !('ContainerConfig' in now));
  const config = now['Config'] as Json;
  assert.deepEqual([config['Cmd'], config['Hostname'], config['Entrypoint'], config['Labels']], [['sh'], '', null, { flavour: 'plain' }]);
  const old = await get(`/v1.24/images/${registry.image.id.slice(7, 19)}/json`);
  assert.ok('VirtualSize' in old && 'ContainerConfig' in old);
  await refused(400, /cannot both be set/, 'GET', `/v1.49/images/${registry.reference}/json?manifests=1&platform=%7B%7D`);
});

test('a platform that the image does not have is not found', { skip: process.env['ENGINE_UNDER_TEST'] === 'dockerd' }, async () => {
  const platform = encodeURIComponent(JSON.stringify({ os: 'linux', architecture: 's390x' }));
  await refused(404, /does not match the specified platform \(linux\/s390x\)/, 'GET', `/v1.49/images/${registry.reference}/json?platform=${platform}`);
});

test('history is newest first, with the ID and the tags of the image on top', async () => {
  const [top, bottom] = await get<Json[]>(`/images/${registry.reference}/history`);
  assert.deepEqual([top?.['Id'], top?.['CreatedBy'], top?.['Tags']], [registry.image.id, 'layer 1', [registry.reference]]);
  assert.deepEqual([bottom?.['Id'], bottom?.['CreatedBy'], bottom?.['Tags']], ['<missing>', 'layer 0', null]);
});

test('tags: bad names are refused, a digest is no tag', async () => {
  await refused(400, /invalid reference format/, 'POST', `/images/${registry.reference}/tag?repo=`);
  await refused(400, /invalid/, 'POST', `/images/${registry.reference}/tag?repo=a&tag=b/c`);
  await refused(400, /refusing to create/, 'POST', `/images/${registry.reference}/tag?repo=sha256&tag=x`);
  await refused(404, /No such image: nothing:latest/, 'POST', '/images/nothing/tag?repo=a');
});

test('pull parameters that make no sense', async () => {
  await refused(400, /./, 'POST', '/images/create');
  await refused(403, /reserved name/, 'POST', '/images/create?fromImage=scratch&tag=latest');
  await refused(400, /./, 'POST', `/images/create?fromImage=${registry.host}/a&tag=b%2Fc`);
  await refused(400, /./, 'POST', `/images/create?fromImage=${registry.host}/a&tag=b&platform=a/b/c/d`);
});

test('an archive is imported, named and runs', async () => {
  const body = gzipSync(tarOf(busyboxEntries()));
  const query = 'fromSrc=-&repo=imported&tag=one&message=from%20a%20test&changes=CMD%20%5B%22echo%22%2C%22hi%22%5D&changes=ENV%20A%3D1';
  const reply = await call(engine.socketPath, 'POST', `/images/create?${query}`, { body, headers: { 'Content-Type': 'text/plain' } });
  assert.equal(reply.status, 200, reply.text);
  const last = JSON.parse(reply.text.trim().split('\r\n').at(-1) ?? '') as { status: string };
  const image = await get('/images/imported:one/json');
  assert.equal(image['Id'], last.status);
  assert.equal(image['Comment'], 'from a test');
  assert.deepEqual((image['Config'] as Json)['Env'], ['A=1']);
  assert.equal(await dockerOk(engine, ['run', '--rm', '--network', 'none', 'imported:one']), 'hi');
  await dockerOk(engine, ['rmi', 'imported:one']);
});

test('what is no archive is not imported', async () => {
  const reply = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=junk', { body: 'this is not a tar '.repeat(100), headers: { 'Content-Type': 'text/plain' } });
  assert.match(reply.text, /message/);
  await refused(404, /No such image: junk:latest/, 'GET', '/images/junk/json');
  await refused(400, /is not a valid change command/, 'POST', '/images/create?fromSrc=-&repo=junk&changes=RUN%20x');
});

test('prune takes the untagged, and tells what was freed', async () => {
  const container = await dockerOk(engine, ['create', registry.reference]);
  const made = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/commit?container=${container}`);
  const kept = await callJson<{ ImagesDeleted: unknown }>(engine.socketPath, 'POST', `/images/prune?${filters({ until: ['2020-01-01'] })}`);
  assert.equal(kept.ImagesDeleted, null);
  const { ImagesDeleted } = await callJson<{ ImagesDeleted: { Deleted?: string }[] }>(engine.socketPath, 'POST', '/images/prune');
  assert.ok(ImagesDeleted.some(({ Deleted }) => Deleted === made.Id));
  await dockerOk(engine, ['rm', container]);
  assert.equal((await get<Json[]>('/images/json')).length, 1);
});
