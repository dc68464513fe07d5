/**
 * A daemon that is restarted by a service manager with a descriptor store refuses nobody: requests and connections to
 * published ports wait for the next process. RESTARTS_COUNT=50 restarts so often.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, unlinkSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { freePort } from '../support/free-port.js';
import { call } from '../support/http.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';
import { startManager, type TestManager } from '../support/service-manager.js';
import { probe, repeat, requests } from '../support/steady-load.js';
import { assertNoneMissed } from '../support/upgrade-load.js';
import { waitFor } from '../support/wait.js';

const RESTARTS = Number(process.env['RESTARTS_COUNT'] ?? 2);
const cleanup = new Cleanup();
let dir: string;
let manager: TestManager;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'restarts-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  manager = startManager(join(dir, 'notify.sock'));
  cleanup.add(async () => manager.close());
});

after(() => cleanup.run());

test('requests, metrics and published ports wait over restarts; what is not served any more is let go', async () => {
  const [tcp, metrics] = [await freePort(), await freePort()];
  const args = ['--live-restore', '--host', `tcp://127.0.0.1:${tcp}`, '--tls=false'];
  args.push('--experimental', '--metrics-addr', `127.0.0.1:${metrics}`);
  const engine = await Engine.start(manager.managed(await withImage(engined({ args }))));
  cleanup.add(() => engine.discard());
  const web = 'mkdir /www; echo served > /www/index.html; exec httpd -f -p 80 -h /www';
  await engineOk(engine, ['run', '-d', '--name', 'web', '-p', '80', SEEDED_IMAGE, 'sh', '-c', web]);
  const port = Number((await engineOk(engine, ['port', 'web', '80'])).split(':').at(-1));
  const gateway = await engineOk(engine, ['inspect', '-f', '{{.NetworkSettings.Networks.bridge.Gateway}}', 'web']);
  const pid = await engineOk(engine, ['inspect', '-f', '{{.State.Pid}}', 'web']);
  await waitFor('the server in the container', () =>
    probe('127.0.0.1', port, 'served').then(
      () => true,
      () => false,
    ),
  );
  const loads = {
    requests: requests(engine.socketPath, '/containers/json', 100),
    'requests over tcp': repeat(20, () => ping(tcp)),
    'readings of metrics': repeat(50, () => ping(metrics, '/metrics')),
    'probes by loopback': repeat(100, () => probe('127.0.0.1', port, 'served')),
    'probes by the rules': repeat(100, () => probe(gateway, port, 'served')),
  };
  for (let round = 0; round < RESTARTS; round++) {
    assert.equal(await engine.stop(), 0);
    assert.ok(existsSync(engine.socketPath));
    await engine.start();
  }
  const slow = [connect(engine.socketPath), connect(tcp, '127.0.0.1'), connect(engine.socketPath)];
  const idle = connect(port, '127.0.0.1');
  await Promise.all([...slow, idle].map((client) => once(client, 'connect')));
  // The docker CLI asks for this first, and sends what it wants on the same connection.
  slow[2]?.write('HEAD /_ping HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
  assert.match(String(await once(slow[2] ?? assert.fail(), 'data')), /^HTTP\/1.1 200/);
  // Connections are accepted in their order, so these are when later ones have an answer.
  await Promise.all([call(engine.socketPath, 'GET', '/_ping'), ping(tcp)]);
  assert.equal(await engine.stop(), 0);
  await engine.start();
  for (const [index, client] of slow.entries()) {
    client.write('GET /_ping HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n');
    const reply = await text(client);
    const what = `client ${index} of those that connect before a restart and ask after it`;
    assert.match(reply, /^HTTP\/1.1 200/, `${what} got ${reply}; the log ends: ${engine.log.slice(-2000)}`);
  }
  idle.write('GET / HTTP/1.0\r\n\r\n');
  assert.match(await text(idle), /served/, 'a connection to a published port that was idle over the restart');
  for (const [what, load] of Object.entries(loads)) assertNoneMissed(what, await load.end());
  // A kill cuts off what is being answered, but whoever comes after it waits.
  await engine.stop('SIGKILL');
  const late = [call(engine.socketPath, 'GET', '/_ping'), ping(tcp), probe('127.0.0.1', port, 'served')];
  await engine.start();
  await Promise.all(late);
  assert.equal(await engineOk(engine, ['inspect', '-f', '{{.State.Pid}}', 'web']), pid);
  const before = manager.stored.size;
  await engineOk(engine, ['rm', '-f', 'web']);
  await waitFor('its ports to be given back', () => manager.stored.size < before);
  await assert.rejects(probe('127.0.0.1', port, 'served'), /ECONNREFUSED/);
  await engine.stop();
  // Somebody has removed the file: clients could not reach the socket that was kept.
  unlinkSync(engine.socketPath);
  await engine.start();
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).text, 'OK');
  assert.equal(manager.stored.size, 3, 'the socket file, the tcp address, the metrics');
  args.splice(args.indexOf('--metrics-addr'), 2);
  await engine.stop();
  await engine.start();
  await waitFor('the address of the metrics to be let go', () => manager.stored.size === 2);
  await assert.rejects(ping(metrics, '/metrics'));
  await engine.stop();
  unlinkSync(engine.socketPath);
  await engine.close();
});

async function ping(port: number, path = '/_ping'): Promise<void> {
  const { status } = await fetch(`http://127.0.0.1:${port}${path}`, { headers: { connection: 'close' } });
  assert.equal(status, 200);
}
