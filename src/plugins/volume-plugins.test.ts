import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { ProtocolVolumePlugins } from './volume-plugins.js';

let dir = '';
/** The answers of the plugin, by method; undefined for none at all. */
const answers = new Map<string, string | undefined>();
const server = createServer((request, response) => {
  const method = (request.url ?? '').slice(1);
  const answer = method === 'Plugin.Activate' ? '{"Implements":["VolumeDriver"]}' : answers.get(method);
  if (answer !== undefined) response.end(answer);
});
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'volume-plugins-'));
  server.listen(join(dir, 'p.sock'));
  await once(server, 'listening');
});
after(async () => {
  server.closeAllConnections();
  server.close();
  await rm(dir, { recursive: true });
});
const open = (callMs = 60_000): ProtocolVolumePlugins =>
  new ProtocolVolumePlugins({ places: { sockets: [dir], files: [] }, limits: { callMs, retryMs: 0 } });

test('answers of another shape are errors, never values', async () => {
  const plugins = open();
  const plugin = await plugins.find('p');
  for (const answer of ['{}', '{"Mountpoint":""}', '{"Mountpoint":"relative"}', '{"Mountpoint":["/a"]}', 'null', '7']) {
    answers.set('VolumeDriver.Mount', answer);
    await assert.rejects(plugin.mount('v', 'u'), (error) => isEngineError(error, 'internal'), answer);
  }
  for (const answer of [
    '{"Volumes":{}}',
    '{"Volumes":[7]}',
    '{"Volumes":[{"Name":7}]}',
    '{"Volumes":[{"Name":"v","Mountpoint":7}]}',
  ]) {
    answers.set('VolumeDriver.List', answer);
    await assert.rejects(plugin.list(), (error) => isEngineError(error, 'internal'), answer);
  }
  answers.set('VolumeDriver.List', '{"volumes":[{"name":"v","status":7}]}');
  assert.deepEqual(await plugin.list(), [{ name: 'v', mountpoint: '', createdAt: '', status: undefined }]);
  answers.set('VolumeDriver.List', '{"Volumes":null}');
  assert.deepEqual(await plugin.list(), []);
  answers.set('VolumeDriver.Capabilities', '{"Capabilities":{"Scope":"elsewhere"}}');
  assert.equal(await plugin.scope(), 'local');
  plugins.close();
});

test('a plugin that does not answer in time is an error', async () => {
  const plugins = open(1_000);
  await assert.rejects((await plugins.find('p')).get('v'), (error) => isEngineError(error, 'deadline'));
  plugins.close();
});

test('names lead to plugins, paths do not', async () => {
  const plugins = open();
  for (const name of ['absent', join(dir, 'p.sock'), '../p', 'p/latest', ''])
    await assert.rejects(plugins.find(name), (error) => isEngineError(error, 'not-found'), name);
  assert.deepEqual(
    (await plugins.installed()).map(({ name }) => name),
    ['p'],
  );
  assert.deepEqual(plugins.known, ['p']);
  plugins.close();
});
