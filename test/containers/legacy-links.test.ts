/** Links on the default bridge: what programs from before there were networks of users expect. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { placeOf } from '../support/container-place.js';
import { dockerd } from '../support/dockerd.js';
import { askEcho, startEchoServer } from '../support/echo-server.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
const ok = (...args: string[]): Promise<string> => engineOk(engine, args);

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const linksOf = async (name: string): Promise<string[] | null> =>
  (await callJson<{ HostConfig: { Links: string[] | null } }>(engine.socketPath, 'GET', `/containers/${name}/json`))
    .HostConfig.Links;

test('variables, names, a new address after a restart, removal of the link', async () => {
  await ok(
    'run',
    '-d',
    '--name',
    'db',
    '-h',
    'store',
    '-e',
    'SECRET=s=1',
    '--expose',
    '5432',
    '--expose',
    '53/udp',
    image,
    'sleep',
    '1000',
  );
  await ok('run', '-d', '--name', 'web', '--link', 'db:my-db', image, 'sleep', '1000');
  assert.deepEqual(await linksOf('web'), ['/db:/web/my-db']);
  const names = async (): Promise<string[] | undefined> =>
    (await callJson<{ Names: string[] }[]>(engine.socketPath, 'GET', '/containers/json'))
      .map(({ Names }) => Names)
      .find((own) => own.includes('/db'));
  assert.deepEqual(await names(), ['/db', '/web/my-db']);
  assert.equal(await ok('inspect', '-f', '{{.Name}}', 'web/my-db'), '/db');
  const address = await ok('inspect', '-f', '{{.NetworkSettings.IPAddress}}', 'db');
  const environment = (await ok('exec', 'web', 'cat', '/proc/1/environ'))
    .split('\0')
    .filter((entry) => entry.startsWith('MY_DB_'))
    .sort();
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
  const hosts = async (): Promise<string | undefined> =>
    (await ok('exec', 'web', 'cat', '/etc/hosts')).split('\n').find((line) => line.includes('my-db'));
  assert.equal(await hosts(), `${address}\tmy-db store db`);

  // Somebody else takes the address meanwhile.
  await ok('stop', '-t', '0', 'db');
  await ok('run', '-d', '--name', 'other', image, 'sleep', '1000');
  await ok('start', 'db');
  const moved = await ok('inspect', '-f', '{{.NetworkSettings.IPAddress}}', 'db');
  assert.equal(await hosts(), `${moved}\tmy-db store db`);

  await ok('rm', '--link', 'web/my-db');
  assert.equal(await linksOf('web'), null);
  assert.deepEqual(await names(), ['/db']);
  assert.equal(await hosts(), undefined);
  await ok('rm', '-f', 'web', 'other', 'db');
});

test('a link to nothing, to a stopped container, and to one with the network of the host', async () => {
  await ok('create', '--name', 'stopped', image);
  await ok('create', '--name', 'hosted', '--network', 'host', image);
  const refused = async (target: string, message: RegExp): Promise<void> => {
    const { status, stderr } = await attempt(engine, [
      'run',
      '--rm',
      '--pull',
      'never',
      '--link',
      target,
      image,
      'true',
    ]);
    assert.notEqual(status, 0);
    assert.match(stderr, message);
  };
  await refused('nobody:x', /could not get container for nobody: No such container: nobody/);
  await refused('stopped:x', /Cannot link to a non running container: \/stopped AS \/.*\/x/);
  await refused('hosted:x', /conflicting options: host type networking can't be used with links/);
  await ok('rm', 'stopped', 'hosted');
  assert.equal(await ok('ps', '-aq'), '');
});

test('where containers are kept apart a link opens what is exposed, to its owner alone', async () => {
  const isPeer = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
  const kept = new Cleanup();
  const apart = await startEngineWithImage(
    kept,
    isPeer ? dockerd({ args: ['--icc=false'] }) : engined({ args: ['--icc=false'] }),
  );
  const run = (name: string, ...args: string[]): Promise<string> =>
    engineOk(apart.engine, ['run', '-d', '--name', name, ...args, apart.image, 'sleep', '1000']);
  try {
    await run('db', '--expose', '5432', '--expose', '53/udp');
    await run('web', '--link', 'db');
    await run('other');
    let stop = await startEchoServer((await placeOf(apart.engine, 'db')).netns, [5432, 81], [53]);
    kept.add(() => stop());
    const reach = async (from: string): Promise<string[]> => {
      const host = (await placeOf(apart.engine, 'db')).address[4];
      const questions = [
        ['tcp', 5432],
        ['udp', 53],
        ['tcp', 81],
      ] as const;
      const answers = await askEcho(
        (await placeOf(apart.engine, from)).netns,
        questions.map(([protocol, port]) => ({ protocol, host, port })),
        1500,
      );
      return answers.map((answer) => (/^\d+ /.test(answer) ? (answer.split(' ')[0] ?? '') : '-'));
    };
    assert.deepEqual(await reach('web'), ['5432', '53', '-']);
    assert.deepEqual(await reach('other'), ['-', '-', '-']);
    // The address may be another one after the restart.
    await stop();
    await engineOk(apart.engine, ['restart', '-t', '0', 'db']);
    stop = await startEchoServer((await placeOf(apart.engine, 'db')).netns, [5432, 81], [53]);
    assert.deepEqual(await reach('web'), ['5432', '53', '-']);
    if (!isPeer) {
      await apart.engine.stop('SIGKILL');
      await apart.engine.start();
      await waitFor('the links to be open again', async () => (await reach('web')).join() === '5432,53,-');
      assert.deepEqual(await reach('other'), ['-', '-', '-']);
    }
    await engineOk(apart.engine, ['rm', '--link', 'web/db']);
    assert.deepEqual(await reach('web'), ['-', '-', '-']);
    if (!isPeer)
      assert.doesNotMatch(
        execFileSync('ip', ['-d', 'link', 'show', 'type', 'veth'], { encoding: 'utf8' }),
        /isolated off/,
      );
    await engineOk(apart.engine, ['rm', '-f', 'web', 'other']);
  } finally {
    await kept.run();
  }
});
