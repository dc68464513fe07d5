/** Links on the default bridge: what programs from before there were networks of users expect. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from './support/cleanup.js';
import { docker, dockerOk } from './support/cli.js';
import type { Engine } from './support/engine.js';
import { startEngineWithImage } from './support/engine-with-image.js';
import { callJson } from './support/http.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
const ok = (...args: string[]): Promise<string> => dockerOk(engine, args);

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const linksOf = async (name: string): Promise<string[] | null> => (await callJson<{ HostConfig: { Links: string[] | null } }>(engine.socketPath, 'GET', `/containers/${name}/json`)).HostConfig.Links;

test('variables, names, a new address after a restart, removal of the link', async () => {
  await ok('run', '-d', '--name', 'db', '-h', 'store', '-e', 'SECRET=s=1', '--expose', '5432', '--expose', '53/udp', image, 'sleep', '1000');
  await ok('run', '-d', '--name', 'web', '--link', 'db:my-db', image, 'sleep', '1000');
  assert.deepEqual(await linksOf('web'), ['/db:/web/my-db']);
  const address = await ok('inspect', '-f', '{{.NetworkSettings.IPAddress}}', 'db');
  const environment = (await ok('exec', 'web', 'cat', '/proc/1/environ')).split('\0').filter((entry) => entry.startsWith('MY_DB_')).sort();
  assert.deepEqual(environment, [
    'MY_DB_ENV_SECRET=s=1',
    'MY_DB_NAME=/web/my-db',
    `MY_DB_PORT=udp://${address}:53`,
    `MY_DB_PORT_53_UDP=udp://${address}:53`,
    `MY_DB_PORT_53_UDP_ADDR=${address}`,
    'MY_DB_PORT_53_UDP_PORT=53',
    'MY_DB_PORT_53_UDP_PROTO=udp',
    `MY_DB_PORT_5432_TCP=tcp://${address}:5432`,
    `MY_DB_PORT_5432_TCP_ADDR=${address}`,
    'MY_DB_PORT_5432_TCP_PORT=5432',
    'MY_DB_PORT_5432_TCP_PROTO=tcp',
  ]);
  const hosts = async (): Promise<string | undefined> => (await ok('exec', 'web', 'cat', '/etc/hosts')).split('\n').find((line) => line.includes('my-db'));
  assert.equal(await hosts(), `${address}\tmy-db store db`);

  // Somebody else takes the address meanwhile.
  await ok('stop', '-t', '0', 'db');
  await ok('run', '-d', '--name', 'other', image, 'sleep', '1000');
  await ok('start', 'db');
  const moved = await ok('inspect', '-f', '{{.NetworkSettings.IPAddress}}', 'db');
  assert.equal(await hosts(), `${moved}\tmy-db store db`);

  await ok('rm', '--link', 'web/my-db');
  assert.equal(await linksOf('web'), null);
  assert.equal(await hosts(), undefined);
  await ok('rm', '-f', 'web', 'other', 'db');
});

test('a link to nothing, to a stopped container, and to one with the network of the host', async () => {
  await ok('create', '--name', 'stopped', image);
  await ok('create', '--name', 'hosted', '--network', 'host', image);
  const refused = async (target: string, message: RegExp): Promise<void> => {
    const { status, stderr } = await docker(engine, ['run', '--rm', '--pull', 'never', '--link', target, image, 'true']);
    assert.notEqual(status, 0);
    assert.match(stderr, message);
  };
  await refused('nobody:x', /could not get container for nobody: No such container: nobody/);
  await refused('stopped:x', /Cannot link to a non running container: \/stopped AS \/.*\/x/);
  await refused('hosted:x', /conflicting options: host type networking can't be used with links/);
  await ok('rm', 'stopped', 'hosted');
  assert.equal(await ok('ps', '-aq'), '');
});
