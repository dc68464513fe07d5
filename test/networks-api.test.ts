/** Networks as a client of the daemon sees them: made, used by name, found again after a crash, pruned. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from './support/cleanup.js';
import { startSeededRegistry, type SeededRegistry } from './support/busybox-image.js';
import { docker, dockerOk } from './support/cli.js';
import { Engine } from './support/engine.js';
import { engined } from './support/engined.js';
import { call, callJson } from './support/http.js';
import { pullOk } from './support/pulls.js';

const cleanup = new Cleanup();
let registry: SeededRegistry;
let engine: Engine;

before(async () => {
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  engine = await Engine.start(engined());
  cleanup.add(() => engine.discard());
  await pullOk(engine, registry.reference);
});
after(() => cleanup.run());

test('containers of a network find each other by name, also after the daemon was killed', async () => {
  const subnet = '10.213.77.0/24';
  const id = await dockerOk(engine, ['network', 'create', '--subnet', subnet, '--label', 'tier=back', 'back']);
  assert.match(id, /^[0-9a-f]{64}$/);
  assert.equal(await dockerOk(engine, ['network', 'inspect', '-f', '{{.Driver}} {{(index .IPAM.Config 0).Subnet}} {{(index .IPAM.Config 0).Gateway}} {{.Labels.tier}}', 'back']), `bridge ${subnet} 10.213.77.1 back`);
  await dockerOk(engine, ['run', '-d', '--name', 'server', '--network', 'back', '--network-alias', 'db', '--ip', '10.213.77.9', registry.reference, 'sleep', '600']);
  const lookups = async (): Promise<void> => {
    for (const name of ['server', 'db', 'server.back']) assert.match(await dockerOk(engine, ['run', '--rm', '--network', 'back', registry.reference, 'ping', '-c', '1', '-w', '3', name]), /10\.213\.77\.9/);
  };
  await lookups();
  assert.match(await dockerOk(engine, ['exec', 'server', 'cat', '/etc/resolv.conf']), /^nameserver 127\.0\.0\.11\n[^]*ndots:0/);
  await engine.stop('SIGKILL');
  await engine.start();
  await lookups();
  // The container that lived on has its name server again.
  assert.match(await dockerOk(engine, ['exec', 'server', 'nslookup', 'db', '127.0.0.11']), /10\.213\.77\.9/);
  const { status, body } = await call(engine.socketPath, 'DELETE', '/networks/back');
  assert.equal(status, 403);
  assert.match(String(body), /has active endpoints/);
  assert.match((await docker(engine, ['network', 'create', 'back'])).stderr, /network with name back already exists/);
  await dockerOk(engine, ['rm', '-f', 'server']);
  assert.equal(await dockerOk(engine, ['network', 'rm', 'back']), 'back');
});

test('networks that nobody uses are pruned', async () => {
  for (const name of ['unused', 'kept', 'used']) await dockerOk(engine, ['network', 'create', '--label', `name=${name}`, name]);
  await dockerOk(engine, ['create', '--name', 'user', '--network', 'used', registry.reference, 'true']);
  const filters = encodeURIComponent(JSON.stringify({ 'label!': ['name=kept'] }));
  assert.deepEqual(await callJson(engine.socketPath, 'POST', `/networks/prune?filters=${filters}`), { NetworksDeleted: ['unused'] });
  assert.deepEqual((await dockerOk(engine, ['network', 'ls', '--format', '{{.Name}}'])).split('\n').sort(), ['bridge', 'host', 'kept', 'none', 'used']);
  await dockerOk(engine, ['rm', 'user']);
  assert.deepEqual(await callJson(engine.socketPath, 'POST', '/networks/prune'), { NetworksDeleted: ['kept', 'used'] });
  assert.deepEqual(await callJson(engine.socketPath, 'POST', '/networks/prune'), { NetworksDeleted: null });
  await engine.close();
});
