/** Networks as a client of the daemon sees them: made, used by name, found again after a crash, pruned. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';

const cleanup = new Cleanup();
let image: string;
let engine: Engine;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

test('containers of a network find each other by name, also after the daemon was killed', async () => {
  const subnet = '10.213.77.0/24';
  const id = await engineOk(engine, ['network', 'create', '--subnet', subnet, '--label', 'tier=back', 'back']);
  assert.match(id, /^[0-9a-f]{64}$/);
  assert.equal(
    await engineOk(engine, [
      'network',
      'inspect',
      '-f',
      '{{.Driver}} {{(index .IPAM.Config 0).Subnet}} {{(index .IPAM.Config 0).Gateway}} {{.Labels.tier}}',
      'back',
    ]),
    `bridge ${subnet} 10.213.77.1 back`,
  );
  await engineOk(engine, [
    'run',
    '-d',
    '--name',
    'server',
    '--network',
    'back',
    '--network-alias',
    'db',
    '--ip',
    '10.213.77.9',
    image,
    'sleep',
    '600',
  ]);
  const lookups = async (): Promise<void> => {
    for (const name of ['server', 'db', 'server.back'])
      assert.match(
        await engineOk(engine, ['run', '--rm', '--network', 'back', image, 'ping', '-c', '1', '-w', '3', name]),
        /10\.213\.77\.9/,
      );
  };
  await lookups();
  assert.match(
    await engineOk(engine, ['exec', 'server', 'cat', '/etc/resolv.conf']),
    /^nameserver 127\.0\.0\.11\n[^]*ndots:0/,
  );
  await engine.stop('SIGKILL');
  await engine.start();
  await lookups();
  // The container that lived on has its name server again.
  assert.match(await engineOk(engine, ['exec', 'server', 'nslookup', 'db', '127.0.0.11']), /10\.213\.77\.9/);
  const { status, body } = await call(engine.socketPath, 'DELETE', '/networks/back');
  assert.equal(status, 403);
  assert.match(String(body), /has active endpoints/);
  assert.match((await attempt(engine, ['network', 'create', 'back'])).stderr, /network with name back already exists/);
  await engineOk(engine, ['rm', '-f', 'server']);
  assert.equal(await engineOk(engine, ['network', 'rm', 'back']), 'back');
});

test('every filter of the list', async () => {
  const ids: Record<string, string> = {};
  for (const [name, ...args] of [
    ['apple', '--label', 'colour=red'],
    ['pear', '--label', 'colour=green', '--label', 'big'],
    ['plum', '--config-only'],
  ] as const)
    ids[name] = await engineOk(engine, ['network', 'create', ...args, name]);
  const listed = async (filters: unknown): Promise<string[]> =>
    (
      await callJson<{ Name: string }[]>(
        engine.socketPath,
        'GET',
        `/networks?filters=${encodeURIComponent(JSON.stringify(filters))}`,
      )
    )
      .map(({ Name }) => Name)
      .toSorted();
  const predefined = ['bridge', 'host', 'none'];
  const own = ['apple', 'pear', 'plum'];
  const cases: [unknown, string[]][] = [
    [{}, [...own, ...predefined].toSorted()],
    [{ name: ['p'] }, own],
    [{ name: ['^pe'] }, ['pear']],
    [{ name: { apple: true, plum: true } }, ['apple', 'plum']],
    [{ id: [ids['pear']?.slice(0, 12)] }, ['pear']],
    [{ driver: ['bridge'] }, ['apple', 'bridge', 'pear']],
    [{ driver: ['host', 'null'] }, ['host', 'none', 'plum']],
    [{ label: ['colour'] }, ['apple', 'pear']],
    [{ label: ['colour=red'] }, ['apple']],
    [{ label: ['colour', 'big'] }, ['pear']],
    [{ type: ['custom'] }, own],
    [{ type: ['builtin'] }, predefined],
    [{ scope: ['local'] }, [...own, ...predefined].toSorted()],
    [{ scope: ['swarm'] }, []],
    [{ dangling: ['true'] }, own],
    [{ dangling: ['false'] }, predefined],
    [{ dangling: [] }, [...own, ...predefined].toSorted()],
    [{ dangling: {}, name: null }, [...own, ...predefined].toSorted()],
    [{ name: ['p'], driver: ['null'] }, ['plum']],
  ];
  for (const [filters, names] of cases) assert.deepEqual(await listed(filters), names, JSON.stringify(filters));
  for (const filters of [
    { type: ['other'] },
    { dangling: ['maybe'] },
    { dangling: ['true', '1'] },
    { colour: ['red'] },
    { name: ['p'], scope: { local: true } },
  ]) {
    assert.equal(
      (await call(engine.socketPath, 'GET', `/networks?filters=${encodeURIComponent(JSON.stringify(filters))}`)).status,
      400,
      JSON.stringify(filters),
    );
  }
  const old = encodeURIComponent(JSON.stringify({ until: [String(Math.floor(Date.now() / 1000) - 3600)] }));
  assert.deepEqual(await callJson(engine.socketPath, 'POST', `/networks/prune?filters=${old}`), {
    NetworksDeleted: null,
  });
  for (const name of own) await engineOk(engine, ['network', 'rm', name]);
});

test('a network without a free address is told by its name', async () => {
  const tiny = await engineOk(engine, ['network', 'create', '--subnet', '10.213.77.0/30', 'tiny']);
  await engineOk(engine, ['run', '-d', '--name', 'one', '--network', 'tiny', image, 'sleep', '600']);
  await engineOk(engine, ['create', '--name', 'two', '--network', 'tiny', image, 'true']);
  const { status, text } = await call(engine.socketPath, 'POST', '/containers/two/start');
  const why = `no available IPv4 addresses on this network's address pools: tiny (${tiny})`;
  assert.equal(status, 500);
  assert.equal((JSON.parse(text) as { message: string }).message, `failed to set up container networking: ${why}`);
  await engineOk(engine, ['rm', '-f', 'one', 'two']);
  await engineOk(engine, ['network', 'rm', 'tiny']);
});

test('containers in the list for clients before 1.28; a MAC address is shown before there is one', async () => {
  await engineOk(engine, ['network', 'create', 'seen']);
  const id = await engineOk(engine, ['create', '--name', 'shy', image, 'sleep', '600']);
  assert.equal(
    (
      await call(engine.socketPath, 'POST', '/networks/seen/connect', {
        json: { Container: id, EndpointConfig: { MacAddress: '02:42:ac:11:00:02' } },
      })
    ).status,
    200,
  );
  const mac = (): Promise<string> =>
    engineOk(engine, ['inspect', '-f', '{{(index .NetworkSettings.Networks "seen").MacAddress}}', 'shy']);
  assert.equal(await mac(), '02:42:ac:11:00:02');
  await engineOk(engine, ['start', 'shy']);
  assert.equal(await mac(), '02:42:ac:11:00:02');
  for (const [version, shown] of [
    ['v1.27', 1],
    ['v1.28', 0],
  ] as const) {
    const [network] = await callJson<{ Containers: Record<string, unknown> }[]>(
      engine.socketPath,
      'GET',
      `/${version}/networks?filters=${encodeURIComponent('{"name":["seen"]}')}`,
    );
    assert.equal(Object.keys(network?.Containers ?? {}).length, shown, version);
  }
  for (const verbose of ['true', '0', ''])
    assert.equal((await call(engine.socketPath, 'GET', `/networks/seen?verbose=${verbose}`)).status, 200, verbose);
  assert.equal((await call(engine.socketPath, 'GET', '/networks/seen?verbose=much')).status, 400);
  await engineOk(engine, ['rm', '-f', 'shy']);
  assert.equal(await engineOk(engine, ['network', 'rm', 'seen']), 'seen');
});

test('networks that nobody uses are pruned', async () => {
  for (const name of ['unused', 'kept', 'used'])
    await engineOk(engine, ['network', 'create', '--label', `name=${name}`, name]);
  await engineOk(engine, ['create', '--name', 'user', '--network', 'used', image, 'true']);
  const filters = encodeURIComponent(JSON.stringify({ 'label!': ['name=kept'] }));
  assert.deepEqual(await callJson(engine.socketPath, 'POST', `/networks/prune?filters=${filters}`), {
    NetworksDeleted: ['unused'],
  });
  assert.deepEqual((await engineOk(engine, ['network', 'ls', '--format', '{{.Name}}'])).split('\n').sort(), [
    'bridge',
    'host',
    'kept',
    'none',
    'used',
  ]);
  await engineOk(engine, ['rm', 'user']);
  assert.deepEqual(await callJson(engine.socketPath, 'POST', '/networks/prune'), { NetworksDeleted: ['kept', 'used'] });
  assert.deepEqual(await callJson(engine.socketPath, 'POST', '/networks/prune'), { NetworksDeleted: null });
});
