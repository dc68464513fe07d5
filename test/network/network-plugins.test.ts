/** Networks and addresses of other processes: real ones, that make bridges and links and hand out addresses. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { CliResult } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { call } from '../support/http.js';
import { IpamPluginServer } from '../support/ipam-plugin.js';
import { NetworkPluginServer } from '../support/network-plugin.js';
import { waitFor } from '../support/wait.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
const MARK = randomBytes(3).toString('hex');
let engine: Engine;
let image: string;
let net: NetworkPluginServer;
let ipam: IpamPluginServer;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  net = new NetworkPluginServer(`net-${MARK}`);
  ipam = new IpamPluginServer(`ipam-${MARK}`, { RequiresMACAddress: true });
  for (const plugin of [net, ipam]) {
    await plugin.start();
    cleanup.add(() => plugin.stop());
  }
});
beforeEach(() => {
  for (const plugin of [net, ipam]) plugin.take();
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => engineOk(engine, args);
const cli = (...args: string[]): Promise<CliResult> => attempt(engine, args);
const run = (name: string, ...args: string[]): Promise<string> =>
  ok('run', '-d', '--name', name, ...args, image, 'sleep', '1000');
const inside = (name: string, ...args: string[]): Promise<string> => ok('exec', name, ...args);
const asked = (method: string): Readonly<Record<string, unknown>> | undefined =>
  [...net.calls, ...ipam.calls].find((each) => each.method.endsWith(`.${method}`))?.argument;
const endpoints = (): number => [...net.networks.values()].reduce((sum, ids) => sum + ids.size, 0);
/** Links of the plugin on this host. */
const pluginLinks = (): string[] =>
  execFileSync('ip', ['-br', 'link'], { encoding: 'utf8' }).match(/^p[bhp][0-9a-f]{10}/gm) ?? [];

describe('a network driver', () => {
  test('makes the network and links of containers, who find each other by name and leave by its gateway', async () => {
    await ok(
      'network',
      'create',
      '-d',
      net.name,
      '-o',
      'x=y',
      '--subnet',
      '10.97.1.0/24',
      '--aux-address',
      'router=10.97.1.9',
      'plain',
    );
    const { Options, IPv4Data, IPv6Data } = asked('CreateNetwork') ?? {};
    assert.deepEqual((Options as Record<string, unknown>)['com.docker.network.generic'], { x: 'y' });
    assert.deepEqual(IPv4Data, [
      {
        AddressSpace: 'LocalDefault',
        Pool: '10.97.1.0/24',
        Gateway: '10.97.1.1/24',
        AuxAddresses: { router: '10.97.1.9/24' },
      },
    ]);
    assert.deepEqual(IPv6Data, []);
    await run('one', '--network', 'name=plain,driver-opt=colour=red', '-p', '18099:80');
    assert.match(await ok('info', '-f', '{{json .Plugins.Network}}'), new RegExp(net.name));
    assert.equal((asked('CreateEndpoint') as { Options: Record<string, unknown> }).Options['colour'], 'red');
    assert.deepEqual((asked('CreateEndpoint') as { Interface: unknown }).Interface, {
      Address: '10.97.1.2/24',
      AddressIPv6: '',
      MacAddress: '',
    });
    assert.deepEqual(
      net.take().filter((name) => name !== 'EndpointOperInfo' && name !== 'GetCapabilities'),
      ['CreateNetwork', 'CreateEndpoint', 'Join', 'ProgramExternalConnectivity'],
    );
    assert.match(
      await inside('one', 'ip', 'addr', 'show', 'plug0'),
      /(?:state UP[\s\S]*link\/ether|UP,LOWER_UP[\s\S]*) 02:aa:bb:cc:dd:01[\s\S]*inet 10\.97\.1\.2\/24/,
    );
    assert.match(await inside('one', 'ip', 'route'), /default via 10\.97\.1\.1 dev plug0/);
    assert.equal(
      await ok(
        'inspect',
        '-f',
        '{{with index .NetworkSettings.Networks "plain"}}{{.IPAddress}} {{.Gateway}} {{.MacAddress}}{{end}}',
        'one',
      ),
      '10.97.1.2 10.97.1.1 02:aa:bb:cc:dd:01',
    );
    await ok('create', '--name', 'two', '--network', 'plain', '--ip', '10.97.1.77', image, 'sleep', '1000');
    await ok('start', 'two');
    // Both links have the same MAC address from this driver: names are what is looked at.
    assert.match(await inside('two', 'nslookup', 'one'), /10\.97\.1\.2/);
    assert.match((await cli('network', 'rm', 'plain')).stderr, /has active endpoints/);
    net.take();
    await ok('rm', '-f', 'one');
    await waitFor('the driver to be told', () => endpoints() === 1);
    assert.deepEqual(net.take(), ['RevokeExternalConnectivity', 'Leave', 'DeleteEndpoint']);
    await ok('rm', '-f', 'two');
    await waitFor('the driver to be told', () => endpoints() === 0);
    await ok('network', 'rm', 'plain');
    assert.equal(net.networks.size, 0);
    assert.deepEqual(pluginLinks(), []);
  });

  test('a running container stays as it was when the driver refuses it', async () => {
    await ok('network', 'create', '-d', net.name, '--subnet', '10.97.2.0/24', 'far');
    await ok('network', 'create', 'own');
    await run('walker', '--network', 'own');
    const routes = await inside('walker', 'ip', 'route');
    net.faults.set('NetworkDriver.Join', '{"Err":"not today"}');
    assert.match((await cli('network', 'connect', 'far', 'walker')).stderr, /remote: not today/);
    net.faults.clear();
    assert.equal(endpoints(), 0);
    assert.equal(await inside('walker', 'ip', 'route'), routes);
    assert.doesNotMatch(await inside('walker', 'ip', '-o', 'link'), /plug0/);
    await ok('rm', '-f', 'walker');
    await ok('network', 'rm', 'far', 'own');
  });

  test('static routes, IPv6 and MAC addresses; connect and disconnect while it runs', async () => {
    const routed = new NetworkPluginServer(`routed-${MARK}`, {
      StaticRoutes: [
        { Destination: '10.200.0.0/16', RouteType: 0, NextHop: '10.97.3.9' },
        { Destination: '10.201.0.0/16', RouteType: 1 },
      ],
    });
    await routed.start();
    try {
      await ok(
        'network',
        'create',
        '-d',
        routed.name,
        '--ipv6',
        '--subnet',
        '10.97.3.0/24',
        '--subnet',
        'fd97:3::/64',
        'routes',
      );
      await ok('network', 'create', 'home');
      await run('mover', '--network', 'home');
      const before = await inside('mover', 'ip', 'route');
      await ok('network', 'connect', 'routes', 'mover');
      const routes = await inside('mover', 'ip', 'route');
      assert.match(routes, /10\.200\.0\.0\/16 via 10\.97\.3\.9 dev plug0/);
      assert.match(routes, /10\.201\.0\.0\/16 dev plug0 +scope link/);
      assert.match(await inside('mover', 'ip', '-6', 'addr', 'show', 'plug0'), /inet6 fd97:3::2\/64/);
      const pings = execFileSync('busybox', ['ping', '-c', '2', '-W', '2', '10.97.3.2'], { encoding: 'utf8' });
      assert.match(pings, /[12] packets received/);
      await ok('network', 'disconnect', 'routes', 'mover');
      await waitFor('the driver to be told', () => [...routed.networks.values()].every(({ size }) => size === 0));
      assert.equal(await inside('mover', 'ip', 'route'), before);
      assert.doesNotMatch(await inside('mover', 'ip', '-o', 'link'), /plug0/);
      await ok('rm', '-f', 'mover');
      await ok('network', 'rm', 'routes', 'home');
      assert.deepEqual(pluginLinks(), []);
    } finally {
      await routed.stop();
    }
  });

  test('its refusals are quoted; nothing is left of what it refused', async () => {
    const refused = await call(engine.socketPath, 'POST', '/networks/create', {
      json: { Name: 'refused', Driver: net.name, Options: { bad: '1' } },
    });
    assert.equal(refused.status, 500, refused.text);
    assert.match(refused.text, /remote: bad option/);
    const unknown = await call(engine.socketPath, 'POST', '/networks/create', {
      json: { Name: 'unknown', Driver: 'no-such-driver' },
    });
    assert.deepEqual([unknown.status, unknown.text], [404, '{"message":"plugin \\"no-such-driver\\" not found"}\n']);
    assert.doesNotMatch(await ok('network', 'ls', '--format', '{{.Name}}'), /refused|unknown/);
    await ok('network', 'create', '-d', net.name, 'faulty');
    for (const [method, fault] of [
      ['Join', '{"Err":"not today"}'],
      ['Join', '{"InterfaceName":{"SrcName":"no/link"}}'],
      ['Join', '{"InterfaceName":{"SrcName":"absent0","DstPrefix":"eth"}}'],
      ['Join', '<html>'],
      ['Join', 'cut'],
      ['CreateEndpoint', '{"Interface":{"MacAddress":"nonsense"}}'],
      ['CreateEndpoint', '{"Interface":{"Address":"10.1.1.1/24"}}'],
    ] as const) {
      net.faults.set(`NetworkDriver.${method}`, fault);
      const { status } = await cli('run', '--rm', '--network', 'faulty', image, 'true');
      assert.notEqual(status, 0, fault);
      net.faults.clear();
      await waitFor(`the endpoint to go after ${fault}`, () => endpoints() === 0);
      assert.equal(await ok('ps', '-aq'), '', fault);
    }
    assert.equal(await ok('run', '--rm', '--network', 'faulty', image, 'echo', 'well'), 'well');
    await waitFor('the driver to be told', () => endpoints() === 0);
    await ok('network', 'rm', 'faulty');
    assert.deepEqual(pluginLinks(), []);
  });

  test(
    'one that is away: no container starts, none is kept from ending, and it is told when it is back',
    { skip: onDockerd },
    async () => {
      await ok('network', 'create', '-d', net.name, 'away');
      await run('stays', '--network', 'away');
      await net.stop();
      assert.match((await cli('run', '--rm', '--network', 'away', image, 'true')).stderr, new RegExp(net.name));
      await ok('kill', 'stays');
      await ok('wait', 'stays');
      assert.equal(endpoints(), 1);
      assert.notEqual((await cli('network', 'rm', 'away')).status, 0);
      await net.start();
      await engine.stop('SIGKILL');
      await engine.start();
      await waitFor('the driver to be told', () => endpoints() === 0);
      await ok('start', 'stays');
      await ok('rm', '-f', 'stays');
      await waitFor('the driver to be told', () => endpoints() === 0);
      await ok('network', 'rm', 'away');
    },
  );

  test(
    'a removal in whose middle the daemon is killed is ended and told by the next one',
    { skip: onDockerd },
    async () => {
      const id = await ok('network', 'create', '-d', net.name, 'leaving');
      await engine.stop('SIGKILL');
      // As it is there while the driver is asked.
      const path = join(engine.dir, 'data', 'network', 'predefined.json');
      const text = readFileSync(path, 'utf8');
      const record = JSON.parse(text) as { value: { networks: { summary: { id: string } }[] } };
      const networks = record.value.networks.map((each) =>
        each.summary.id === id ? { ...each, isPending: true, leavingSince: new Date().toISOString() } : each,
      );
      assert.equal(networks.length, record.value.networks.length);
      writeFileSync(path, JSON.stringify({ ...record, value: { ...record.value, networks } }));
      await engine.start();
      await waitFor('the driver to be told', () => asked('DeleteNetwork')?.['NetworkID'] === id);
      const filters = encodeURIComponent(JSON.stringify({ event: ['destroy'], network: [id] }));
      const told = async (): Promise<string[]> => {
        const path = `/events?since=1&until=${Date.now() / 1000}&filters=${filters}`;
        return (await call(engine.socketPath, 'GET', path)).text.split('\n').filter(Boolean);
      };
      assert.equal((await told()).length, 1);
      await engine.stop('SIGKILL');
      await engine.start();
      assert.equal((await told()).length, 1);
    },
  );
});

describe('a manager of addresses', () => {
  const given = (): string[] => [...ipam.pools.values()].flatMap(({ taken }) => [...taken]).toSorted();

  test('chooses subnets and addresses of a bridge network, and gets them back', async () => {
    await ok('network', 'create', '--ipam-driver', ipam.name, '--ipam-opt', 'q=r', 'managed');
    assert.deepEqual((asked('RequestPool') as { Options: unknown }).Options, { q: 'r' });
    const [subnet = ''] = [...ipam.pools.keys()].map((id) => id.split('/').slice(1).join('/'));
    assert.equal(
      await ok('network', 'inspect', '-f', '{{(index .IPAM.Config 0).Subnet}} {{.IPAM.Driver}}', 'managed'),
      `${subnet} ${ipam.name}`,
    );
    const gateway = given()[0] ?? '';
    await run('guest', '--network', 'managed', '--hostname', 'guest');
    const address = given().find((each) => each !== gateway) ?? '';
    assert.match(await inside('guest', 'ip', 'addr', 'show', 'eth0'), new RegExp(`inet ${address}/24`));
    assert.match(await inside('guest', 'ip', 'route'), new RegExp(`default via ${gateway} `));
    const options = ipam.calls.findLast(({ method }) => method === 'IpamDriver.RequestAddress')?.argument['Options'];
    const mac = /(?:[0-9a-f]{2}:){5}[0-9a-f]{2}/.exec(JSON.stringify(options))?.[0] ?? 'none';
    assert.ok((await inside('guest', 'ip', 'link', 'show', 'eth0')).includes(mac), mac);
    await ok('rm', '-f', 'guest');
    await waitFor('the address to be given back', () => given().length === 1);
    await ok('network', 'rm', 'managed');
    assert.equal(ipam.pools.size, 0);
  });

  test('is asked for what clients have chosen; what is taken is an error of the one container', async () => {
    await ok(
      'network',
      'create',
      '--ipam-driver',
      ipam.name,
      '--subnet',
      '10.96.0.0/24',
      '--gateway',
      '10.96.0.9',
      '--aux-address',
      'router=10.96.0.5',
      'chosen',
    );
    assert.deepEqual(given(), ['10.96.0.5', '10.96.0.9']);
    await run('fixed', '--network', 'chosen', '--ip', '10.96.0.20');
    assert.match(await inside('fixed', 'ip', 'addr', 'show', 'eth0'), /inet 10\.96\.0\.20\/24/);
    const second = await cli('run', '--rm', '--network', 'chosen', '--ip', '10.96.0.20', image, 'true');
    assert.notEqual(second.status, 0);
    assert.match(second.stderr, /address is in use|No address returned/);
    await ok('rm', '-f', 'fixed');
    await waitFor('the address to be given back', () => given().length === 2);
    await ok('network', 'rm', 'chosen');
    assert.deepEqual(given(), []);
  });

  test('serves the networks of a driver too, with IPv6; another network may not have its subnet', async () => {
    await ok('network', 'create', '-d', net.name, '--ipam-driver', ipam.name, '--ipv6', 'both');
    assert.deepEqual(
      [...ipam.pools.keys()].map((id) => id.includes(':')),
      [false, true],
    );
    await run('guest', '--network', 'both');
    const addresses = await inside('guest', 'ip', 'addr', 'show', 'plug0');
    for (const address of given().filter((each) => /[^13]$/.test(each)))
      assert.ok(
        addresses.includes(`inet${address.includes(':') ? '6' : ''} ${address}/`),
        `${address} in ${addresses}`,
      );
    // The other engine lets bridges have the subnets of other drivers.
    const [pool = ''] = [...ipam.pools.keys()];
    if (!onDockerd)
      assert.match(
        (await cli('network', 'create', '--subnet', pool.split('/').slice(1).join('/'), 'clash')).stderr,
        /Pool overlaps with other one on this address space/,
      );
    await ok('rm', '-f', 'guest');
    await waitFor('the driver to be told', () => endpoints() === 0);
    await ok('network', 'rm', 'both');
    assert.deepEqual([given(), net.networks.size], [[], 0]);
  });

  test('rubbish and refusals leave nothing', async () => {
    for (const [method, fault] of [
      ['RequestPool', '{"Err":"no pool for you"}'],
      ['RequestPool', '{"PoolID":"x","Pool":"nonsense"}'],
      ['RequestAddress', '{"Err":"no address"}'],
      ['RequestAddress', '{"Address":"10.1.1.1"}'],
    ] as const) {
      ipam.faults.set(`IpamDriver.${method}`, fault);
      const reply = await call(engine.socketPath, 'POST', '/networks/create', {
        json: { Name: 'never', IPAM: { Driver: ipam.name } },
      });
      assert.ok(reply.status >= 400, `${fault}: ${reply.status}`);
      ipam.faults.clear();
    }
    assert.doesNotMatch(await ok('network', 'ls', '--format', '{{.Name}}'), /never/);
    if (!onDockerd) assert.equal(ipam.pools.size, 0);
    assert.match(
      (await cli('network', 'create', '--ipam-driver', 'no-such', 'never')).stderr,
      /plugin "no-such" not found/,
    );
  });
});

test(
  'a daemon that is killed: running containers keep what plugins gave, what the others had is given back',
  { skip: onDockerd },
  async () => {
    const before = [...ipam.pools.keys()];
    await ok('network', 'create', '-d', net.name, '--ipam-driver', ipam.name, 'lasting');
    await run('runs', '--network', 'lasting');
    await run('ends', '--network', 'lasting');
    const pid = Number(await ok('inspect', '-f', '{{.State.Pid}}', 'ends'));
    const pool = [...ipam.pools].find(([id]) => !before.includes(id))?.[1];
    assert.deepEqual([pool?.taken.size, endpoints()], [3, 2]);
    await engine.stop('SIGKILL');
    process.kill(pid, 'SIGKILL');
    await engine.start();
    await waitFor('what was given to be given back', () => pool?.taken.size === 2 && endpoints() === 1);
    const gateway = await ok('network', 'inspect', '-f', '{{(index .IPAM.Config 0).Gateway}}', 'lasting');
    assert.match(await inside('runs', 'ping', '-c', '2', '-W', '2', gateway), /[12] packets received/);
    await ok('rm', '-f', 'runs', 'ends');
    await waitFor('what was given to be given back', () => pool?.taken.size === 1 && endpoints() === 0);
    await ok('network', 'rm', 'lasting');
    assert.deepEqual([pluginLinks(), net.networks.size, ipam.pools.size], [[], 0, before.length]);
  },
);
