/** Containers that change networks while they run, as an unmodified client does it; also against the known engine. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let image: string;
let engine: Engine;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  await engineOk(engine, ['network', 'create', '--subnet', '10.214.1.0/24', 'front']);
  await engineOk(engine, ['network', 'create', '--subnet', '10.214.2.0/24', 'back']);
  await engineOk(engine, ['network', 'create', '--subnet', '10.214.3.0/24', '--internal', 'inner']);
});
after(() => cleanup.run());

const run = (name: string, ...options: readonly string[]): Promise<string> =>
  engineOk(engine, ['run', '-d', '--name', name, ...options, image, 'sleep', '600']);
const inside = (name: string, ...command: readonly string[]): Promise<string> =>
  engineOk(engine, ['exec', name, ...command]);

/** The first line that whoever listens on a port of this host sends. */
async function greeting(port: number): Promise<string> {
  return waitFor(
    () => `an answer from port ${port}`,
    () =>
      new Promise<string | undefined>((resolve) => {
        const socket = createConnection(port, '127.0.0.1');
        socket.on('data', (data) => (resolve(data.toString().trim()), socket.destroy()));
        socket.on('error', () => resolve(undefined));
        socket.on('close', () => resolve(undefined));
      }),
  );
}

test('a start on a network that is gone says what failed, and is not found', async () => {
  await engineOk(engine, ['network', 'create', 'gone']);
  await engineOk(engine, ['create', '--name', 'lost', '--network', 'gone', image, 'true']);
  await engineOk(engine, ['network', 'rm', 'gone']);
  const reply = await call(engine.socketPath, 'POST', '/containers/lost/start');
  const message = 'failed to set up container networking: network gone not found';
  assert.deepEqual([reply.status, JSON.parse(reply.text)], [404, { message }]);
  const { State } = await callJson<{ State: { Error: string; ExitCode: number } }>(
    engine.socketPath,
    'GET',
    '/containers/lost/json',
  );
  assert.deepEqual([State.Error, State.ExitCode], [message, 128]);
  await engineOk(engine, ['rm', 'lost']);
});

test('a start that fails tells that it has left the networks which it joined', async () => {
  const since = (Date.now() / 1000).toFixed(9);
  const id = await engineOk(engine, ['create', '--name', 'failing', image, 'no-such-program']);
  for (let i = 0; i < 2; i++)
    assert.equal((await call(engine.socketPath, 'POST', `/containers/${id}/start`)).status, 400);
  const filters = encodeURIComponent(JSON.stringify({ type: ['network'] }));
  const until = (Date.now() / 1000).toFixed(9);
  const { text } = await call(engine.socketPath, 'GET', `/events?since=${since}&until=${until}&filters=${filters}`);
  const actions = text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { Action: string; Actor: { Attributes: { container?: string } } })
    .filter(({ Actor }) => Actor.Attributes.container === id)
    .map(({ Action }) => Action);
  // One engine makes the task first and joins no network then, but tells that it has left them.
  assert.deepEqual(
    actions.filter((action) => action !== 'connect'),
    ['disconnect', 'disconnect'],
  );
  await engineOk(engine, ['rm', 'failing']);
});

test('exposed ports are shown on networks that the host leads to', async () => {
  for (const [network, ports] of [
    ['front', { '81/tcp': null }],
    ['inner', {}],
    ['none', {}],
    ['host', {}],
  ] as const) {
    await run(`on-${network}`, '--network', network, '--expose', '81');
    const { NetworkSettings } = await callJson<{ NetworkSettings: { Ports: object } }>(
      engine.socketPath,
      'GET',
      `/containers/on-${network}/json`,
    );
    assert.deepEqual(NetworkSettings.Ports, ports, network);
    const shown = await engineOk(engine, ['ps', '--filter', `name=on-${network}`, '--format', '{{.Ports}}']);
    assert.equal(shown.trim(), Object.keys(ports).join());
    await engineOk(engine, ['rm', '-f', `on-${network}`]);
  }
});

test('a running container joins and leaves networks: links, names, hosts and the way out follow', async () => {
  await run('db', '--network', 'back');
  await run('app', '--network', 'front');
  assert.notEqual((await attempt(engine, ['exec', 'app', 'nslookup', 'db', '127.0.0.11'])).status, 0);
  await engineOk(engine, [
    'network',
    'connect',
    '--ip',
    '10.214.2.77',
    '--alias',
    'api',
    '--link',
    'db:store',
    'back',
    'app',
  ]);
  assert.match(await inside('app', 'nslookup', 'store', '127.0.0.11'), /10\.214\.2\.2/);
  assert.match(await inside('db', 'nslookup', 'api', '127.0.0.11'), /10\.214\.2\.77/);
  assert.notEqual(
    (await attempt(engine, ['exec', 'db', 'nslookup', 'store', '127.0.0.11'])).status,
    0,
    'a link is for its owner alone',
  );
  assert.match(await inside('app', 'ip', '-o', '-4', 'addr', 'show', 'eth1'), /10\.214\.2\.77\/24/);
  assert.match(await inside('app', 'cat', '/etc/hosts'), /10\.214\.2\.77\t/);
  // When networks have the same priority, the one whose name comes first is the way out.
  assert.match(await inside('app', 'ip', 'route'), /default via 10\.214\.2\.1/);
  await engineOk(engine, ['network', 'disconnect', 'back', 'app']);
  assert.match(await inside('app', 'ip', 'route'), /default via 10\.214\.1\.1/);
  assert.doesNotMatch(await inside('app', 'ip', '-o', 'link'), /eth1/);
  assert.notEqual((await attempt(engine, ['exec', 'db', 'nslookup', 'api', '127.0.0.11'])).status, 0);
  await engineOk(engine, ['rm', '-f', 'app', 'db']);
});

test('published ports go with the way out', async () => {
  await run('quiet', '--network', 'inner', '-p', '127.0.0.1::7');
  assert.equal((await docker(engine, ['port', 'quiet'])).stdout, '');
  await inside('quiet', 'sh', '-c', 'while true; do nc -l -p 7 -e echo hello; done > /dev/null 2>&1 & true');
  await engineOk(engine, ['network', 'connect', 'front', 'quiet']);
  const port = async (): Promise<number> =>
    Number(/:(\d+)$/.exec(await engineOk(engine, ['port', 'quiet', '7/tcp']))?.[1]);
  const first = await port();
  assert.equal(await greeting(first), 'hello');
  await engineOk(engine, ['network', 'connect', 'back', 'quiet']);
  assert.equal(await greeting(await port()), 'hello');
  await engineOk(engine, ['network', 'disconnect', 'back', 'quiet']);
  assert.equal(await greeting(await port()), 'hello');
  if (engine.name === 'engined') assert.equal(await port(), first, 'the number stays');
  await engineOk(engine, ['rm', '-f', 'quiet']);
});

test(
  'a connection that cannot be told to the container is none',
  { skip: process.env['ENGINE_UNDER_TEST'] === 'dockerd' && 'it keeps its files elsewhere' },
  async () => {
    const id = await run('firm', '--network', 'front', '-p', '127.0.0.1::7');
    await inside('firm', 'sh', '-c', 'while true; do nc -l -p 7 -e echo hello; done > /dev/null 2>&1 & true');
    const port = Number(/:(\d+)$/.exec(await engineOk(engine, ['port', 'firm', '7/tcp']))?.[1]);
    const hosts = join(engine.dir, 'data', 'containers', id, 'hosts');
    execFileSync('mount', ['--bind', hosts, hosts]);
    try {
      execFileSync('mount', ['-o', 'remount,bind,ro', hosts]);
      const { status } = await attempt(engine, ['network', 'connect', 'back', 'firm']);
      assert.notEqual(status, 0);
    } finally {
      execFileSync('umount', [hosts]);
    }
    assert.doesNotMatch(await inside('firm', 'ip', '-o', 'link'), /eth1/);
    assert.match(await inside('firm', 'ip', 'route'), /default via 10\.214\.1\.1/);
    assert.equal(await greeting(port), 'hello');
    await engineOk(engine, ['network', 'connect', 'back', 'firm']);
    assert.match(await inside('firm', 'ip', 'route'), /default via 10\.214\.2\.1/);
    await engineOk(engine, ['rm', '-f', 'firm']);
  },
);

test('a container that does not run keeps what it will be connected to', async () => {
  await engineOk(engine, ['create', '--name', 'later', '--network', 'front', image, 'sleep', '600']);
  await engineOk(engine, ['network', 'connect', '--alias', 'soon', 'back', 'later']);
  await engineOk(engine, ['network', 'disconnect', 'front', 'later']);
  await engineOk(engine, ['start', 'later']);
  const addresses = await inside('later', 'ip', '-o', '-4', 'addr');
  assert.match(addresses, /10\.214\.2\./);
  assert.doesNotMatch(addresses, /10\.214\.1\./);
  await engineOk(engine, ['rm', '-f', 'later']);
});

test('what cannot be is refused in the words that clients know, and leaves nothing', async () => {
  await run('plain', '--network', 'front');
  await run('hosted', '--network', 'host');
  await run('alone', '--network', 'none');
  await run('shared', '--network', 'container:plain');
  await engineOk(engine, ['network', 'create', 'chosen-by-engine']);
  const links = await inside('plain', 'ip', '-o', 'link');
  const sharing =
    /container sharing network namespace with another container or host cannot be connected to any other network/;
  const none = /container cannot be connected to multiple networks with one of the networks in private \(none\) mode/;
  const host =
    /cannot (dis)?connect container (from|to) host network - container (was|must be) created in host network mode/;
  const at = (IPv4Address: string) => ({ IPAMConfig: { IPv4Address } });
  const cases: [verb: 'connect' | 'disconnect', network: string, body: unknown, status: number, message: RegExp][] = [
    ['connect', 'front', { Container: 'plain' }, 403, /^endpoint with name plain already exists in network front$/],
    ['connect', 'nowhere', { Container: 'plain' }, 404, /^network nowhere not found$/],
    ['connect', 'back', { Container: 'nobody' }, 404, /^No such container: nobody$/],
    ['connect', 'back', { Container: 'hosted' }, 400, sharing],
    ['connect', 'back', { Container: 'shared' }, 400, sharing],
    ['connect', 'back', { Container: 'alone' }, 400, none],
    ['connect', 'none', { Container: 'plain' }, 400, none],
    ['connect', 'host', { Container: 'plain' }, 400, host],
    ['disconnect', 'host', { Container: 'hosted' }, 400, host],
    [
      'connect',
      'bridge',
      { Container: 'plain', EndpointConfig: { Aliases: ['x'] } },
      400,
      /^network-scoped alias is supported only for containers in user defined networks$/,
    ],
    [
      'connect',
      'bridge',
      { Container: 'plain', EndpointConfig: at('172.17.0.99') },
      400,
      /^user specified IP address is supported on user defined networks only$/,
    ],
    [
      'connect',
      'chosen-by-engine',
      { Container: 'plain', EndpointConfig: at('172.18.0.99') },
      400,
      /^user specified IP address is supported only when connecting to networks with user configured subnets$/,
    ],
    [
      'connect',
      'back',
      { Container: 'plain', EndpointConfig: at('10.99.0.1') },
      engine.name === 'engined' ? 400 : 500,
      /10\.99\.0\.1/,
    ],
    ['connect', 'back', { Container: 'plain', EndpointConfig: at('10.214.2.1') }, 403, /^Address already in use$/],
    ['disconnect', 'back', { Container: 'plain' }, 500, /is not connected to network back$/],
    ['disconnect', 'nowhere', { Container: 'plain' }, 404, /^network nowhere not found$/],
  ];
  for (const [verb, network, body, status, message] of cases) {
    const reply = await call(engine.socketPath, 'POST', `/networks/${network}/${verb}`, { json: body });
    const about = `${verb} ${network} ${JSON.stringify(body)}`;
    assert.equal(reply.status, status, `${about}: ${String(reply.body)}`);
    assert.match((JSON.parse(String(reply.body)) as { message: string }).message, message, about);
  }
  assert.equal(await inside('plain', 'ip', '-o', 'link'), links);
  await engineOk(engine, ['rm', '-f', 'shared', 'plain', 'hosted', 'alone']);
  await engineOk(engine, ['network', 'rm', 'chosen-by-engine']);
});

test('networks that exclude each other are refused together, in the same words', async () => {
  const sharing = /container sharing network namespace with another container or host/;
  const none = /container cannot be connected to multiple networks with one of the networks in private \(none\) mode/;
  const host = /cannot connect container to host network - container must be created in host network mode/;
  const cases: [mode: string, other: string, message: RegExp][] = [
    ['host', 'bridge', sharing],
    ['host', 'front', sharing],
    ['bridge', 'host', host],
    ['none', 'front', none],
    ['front', 'none', none],
  ];
  for (const [mode, other, message] of cases) {
    const json = {
      Image: image,
      Cmd: ['true'],
      HostConfig: { NetworkMode: mode },
      NetworkingConfig: { EndpointsConfig: { [mode]: {}, [other]: {} } },
    };
    const created = await call(engine.socketPath, 'POST', '/containers/create?name=both', { json });
    // The known engine finds out at the start, by the network that it joins second.
    const reply = engine.name === 'engined' ? created : await call(engine.socketPath, 'POST', '/containers/both/start');
    assert.equal(reply.status, 400, `${mode} and ${other}: ${reply.text}`);
    if (engine.name === 'engined') assert.match(reply.text, message);
    await attempt(engine, ['rm', '-f', 'both']);
  }
});

test('who shares the network of a container is refused addresses and names of its own', async () => {
  await run('donor');
  const mode = 'container:donor';
  const onlyOwn = 'user specified IP address is supported on user defined networks only';
  const cases: [settings: object, message: string][] = [
    [{ IPAMConfig: { IPv4Address: '10.214.1.9' } }, `invalid endpoint settings:\n${onlyOwn}`],
    [{ IPAMConfig: { IPv6Address: 'fd00::9' } }, `invalid endpoint settings:\n${onlyOwn}`],
    [{ IPAMConfig: { IPv4Address: 'zz' } }, `invalid endpoint settings:\n* ${onlyOwn}\n* invalid IPv4 address: zz`],
    [
      { Aliases: ['other'] },
      'invalid endpoint settings:\nnetwork-scoped alias is supported only for containers in user defined networks',
    ],
    [{ MacAddress: 'zz' }, 'invalid MAC address zz'],
  ];
  for (const [settings, message] of cases) {
    const json = {
      Image: image,
      HostConfig: { NetworkMode: mode },
      NetworkingConfig: { EndpointsConfig: { [mode]: settings } },
    };
    const { status, text } = await call(engine.socketPath, 'POST', '/containers/create?name=sharing', { json });
    const expected = { message: `invalid config for network ${mode}: ${message}` };
    assert.deepEqual([status, JSON.parse(text)], [400, expected]);
  }
  await engineOk(engine, ['rm', '-f', 'donor']);
});

test('a container in the mode of the host joins no network, also when it has left the one of the host', async () => {
  await engineOk(engine, ['create', '--name', 'hosted', '--network', 'host', image, 'true']);
  await engineOk(engine, ['network', 'disconnect', 'host', 'hosted']);
  const json = { Container: 'hosted' };
  const reply = await call(engine.socketPath, 'POST', '/networks/front/connect', { json });
  // The known engine takes it, and fails at each start.
  if (engine.name === 'engined') assert.deepEqual([reply.status, /cannot be connected/.test(reply.text)], [400, true]);
  await engineOk(engine, ['rm', 'hosted']);
});

test('a container without networks joins none at its start, whatever it was connected to', async () => {
  const json = {
    Image: image,
    Cmd: ['sleep', '600'],
    NetworkDisabled: true,
    HostConfig: { NetworkMode: 'front' },
  };
  assert.equal((await call(engine.socketPath, 'POST', '/containers/create?name=alone', { json })).status, 201);
  await attempt(engine, ['network', 'connect', 'back', 'alone']);
  await engineOk(engine, ['start', 'alone']);
  assert.equal(await inside('alone', 'ip', '-o', 'addr', 'show', 'scope', 'global'), '');
  assert.doesNotMatch(await inside('alone', 'ip', '-o', 'link'), /eth0/);
  await engineOk(engine, ['restart', '-t', '0', 'alone']);
  assert.doesNotMatch(await inside('alone', 'ip', '-o', 'link'), /eth0/);
  await engineOk(engine, ['rm', '-f', 'alone']);
});

test(
  'a change outlives the daemon',
  { skip: process.env['ENGINE_UNDER_TEST'] === 'dockerd' && 'its containers end with it' },
  async () => {
    await run('lasting', '--network', 'front');
    await engineOk(engine, ['network', 'connect', '--alias', 'stay', 'back', 'lasting']);
    await engine.stop('SIGKILL');
    await engine.start();
    await run('asking', '--network', 'back');
    assert.match(await inside('asking', 'nslookup', 'stay', '127.0.0.11'), /10\.214\.2\./);
    await engineOk(engine, ['network', 'disconnect', 'back', 'lasting']);
    assert.doesNotMatch(await inside('lasting', 'ip', '-o', '-4', 'addr'), /10\.214\.2\./);
    await engineOk(engine, ['rm', '-f', 'lasting', 'asking']);
    await engineOk(engine, ['network', 'rm', 'front', 'back', 'inner']);
  },
);
