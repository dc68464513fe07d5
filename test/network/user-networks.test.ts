/** Networks that users make, with real namespaces, links and iptables. Needs root. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { type ErrorKind, isEngineError } from '../../src/errors/engine-error.js';
import type { NetworkRequest } from '../../src/ports/network.js';
import { Cleanup } from '../support/cleanup.js';
import {
  attachSandbox,
  detachSandbox,
  networkPlan,
  networksOf,
  outputInside,
  runInside,
} from '../support/host-networks.js';
import { request, someSubnet, subnet } from '../support/network-requests.js';
import { silentLog } from '../support/silent-log.js';
import { testedRules } from '../support/tested-backend.js';

const directory = mkdtempSync(join(tmpdir(), 'user-networks-'));
const cleanup = new Cleanup();

after(async () => {
  await cleanup.run();
  rmSync(directory, { recursive: true });
});

async function start(identities: { value: unknown } = { value: undefined }, plan = networkPlan(directory)) {
  const networks = networksOf(plan, silentLog, identities);
  await networks.start();
  cleanup.add(async () => {
    for (const id of networks.sandboxIds()) await networks.removeSandbox(id);
    await networks.stop();
  });
  return { plan, networks };
}

const fails = (kind: ErrorKind, pattern: RegExp) => (error: unknown) => {
  assert.ok(isEngineError(error, kind), String(error));
  assert.match(error.message, pattern);
  return true;
};

const ping = (path: string, address: string): boolean => {
  try {
    // The first question for a neighbour can be too early for a bridge port that has just come up.
    return / [12] packets received/.test(runInside(path, 'busybox', 'ping', '-c2', '-W1', address));
  } catch {
    return false;
  }
};

test('a network is made as asked for, found by name and ID, and removed', async () => {
  const { networks } = await start();
  const link = `engl${randomBytes(3).toString('hex')}`;
  const [own] = request('x').subnets;
  assert.ok(own);
  const base = own.subnet.replace(/0\/24$/, '');
  const made = await networks.create(
    request('web_net', {
      enableIpv6: true,
      subnets: [
        { ...own, ipRange: `${base}128/25`, gateway: `${base}5`, auxiliaryAddresses: { router: `${base}128` } },
      ],
      options: { 'com.docker.network.bridge.name': link, 'com.engine.network.driver.mtu': '1300' },
      labels: { a: 'b' },
    }),
  );
  assert.match(made.id, /^[0-9a-f]{64}$/);
  assert.equal(networks.resolve('web_net').id, made.id);
  assert.equal(networks.resolve(made.id.slice(0, 12)).name, 'web_net');
  assert.deepEqual(made.labels, { a: 'b' });
  const address = execFileSync('ip', ['-o', 'addr', 'show', 'dev', link], { encoding: 'utf8' });
  assert.ok(address.includes(`inet ${base}5/24 `));
  assert.match(address, /inet6 fd[0-9a-f:]+::1\/64/);
  assert.match(execFileSync('ip', ['-o', 'link', 'show', link], { encoding: 'utf8' }), / mtu 1300 /);
  const sandbox = await attachSandbox(networks, [], { network: 'web_net' });
  assert.equal(sandbox.endpoint.ipv4, `${base}129`);
  assert.equal(sandbox.endpoint.gateway, `${base}5`);
  await assert.rejects(
    networks.remove('web_net'),
    fails(
      'forbidden',
      /^error while removing network: network web_net has active endpoints \(name:"[^"]*" id:"[0-9a-f]{12}"\)$/,
    ),
  );
  await detachSandbox(networks, sandbox);
  assert.equal((await networks.remove('web_net')).id, made.id);
  assert.throws(() => networks.resolve('web_net'), fails('not-found', /^network web_net not found$/));
  assert.equal(execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' }).includes(link), false);
  assert.equal(testedRules().includes(link), false);
});

test('networks are apart from each other; a published port is the way between them', async () => {
  const { networks } = await start();
  for (const name of ['one', 'two']) await networks.create(request(name));
  const [a, b, c] = await Promise.all([
    attachSandbox(networks, [], { network: 'one' }),
    attachSandbox(networks, [], { network: 'one' }),
    attachSandbox(networks, [{ protocol: 'tcp', containerPort: 80, hostIp: '', hostPort: 0 }], { network: 'two' }),
  ]);
  assert.equal(ping(a.path, b.endpoint.ipv4), true);
  assert.equal(ping(a.path, c.endpoint.ipv4), false);
  assert.equal(ping(c.path, a.endpoint.ipv4), false);
  // Nobody listens: that the port is refused, and not silent, comes from the container.
  const refused = await outputInside(
    a.path,
    process.execPath,
    '-e',
    `require('node:net').connect(${c.ports[0]?.hostPort ?? 0}, '${a.endpoint.gateway}')
      .on('error', (error) => console.log(error.code))`,
  );
  assert.equal(refused.trim(), 'ECONNREFUSED');
  for (const sandbox of [a, b, c]) await detachSandbox(networks, sandbox);
});

test('an internal network has no way out', async () => {
  const { networks } = await start();
  const made = await networks.create(request('inside', { internal: true }));
  const [a, b] = await Promise.all([
    attachSandbox(networks, [], { network: 'inside' }),
    attachSandbox(networks, [], { network: made.id }),
  ]);
  assert.equal(a.endpoint.gateway, '');
  assert.equal(ping(a.path, b.endpoint.ipv4), true);
  assert.equal(runInside(a.path, 'ip', 'route').includes('default'), false);
  for (const sandbox of [a, b]) await detachSandbox(networks, sandbox);
});

test('static addresses where the client chose the subnet, and only there', async () => {
  const { networks } = await start();
  const own = someSubnet();
  const base = own.replace(/0\/24$/, '');
  await networks.create(request('chosen', { subnets: [subnet({ subnet: own })] }));
  const sandbox = await attachSandbox(networks, [], {
    network: 'chosen',
    ipv4: `${base}77`,
    macAddress: '02:42:00:00:00:77',
  });
  assert.equal(sandbox.endpoint.ipv4, `${base}77`);
  assert.ok(runInside(sandbox.path, 'ip', '-o', 'addr').includes(`inet ${base}77/24 `));
  assert.ok(runInside(sandbox.path, 'ip', '-o', 'link').includes('02:42:00:00:00:77'));
  await assert.rejects(
    attachSandbox(networks, [], { network: 'chosen', ipv4: `${base}77` }),
    fails('forbidden', /^Address already in use$/),
  );
  await assert.rejects(
    attachSandbox(networks, [], { network: 'chosen', ipv4: '192.0.2.1' }),
    fails('invalid', /no configured subnet or ip-range contain the IP address 192\.0\.2\.1/),
  );
  await networks.create(request('any', { subnets: [] }));
  await assert.rejects(
    attachSandbox(networks, [], { network: 'any', ipv4: '192.0.2.1' }),
    fails(
      'invalid',
      /^user specified IP address is supported only when connecting to networks with user configured subnets$/,
    ),
  );
  await assert.rejects(
    attachSandbox(networks, [], { ipv4: '192.0.2.1' }),
    fails('invalid', /^user specified IP address is supported on user defined networks only$/),
  );
  await detachSandbox(networks, sandbox);
});

test('several networks on one container: the highest priority is the way out, and another one after it', async () => {
  const { networks } = await start();
  for (const name of ['one', 'two', 'three']) await networks.create(request(name));
  const sandbox = await attachSandbox(networks, [], { network: 'one' });
  const join = (network: string, gatewayPriority = 0) =>
    networks.attach({ containerId: sandbox.id, network, aliases: [], dnsNames: [], ports: [], gatewayPriority });
  const two = await join('two');
  const wayOut = (): string | undefined => /default via (\S+)/.exec(runInside(sandbox.path, 'ip', 'route'))?.[1];
  assert.equal(wayOut(), sandbox.endpoint.gateway);
  const three = await join('three', 10);
  assert.equal(wayOut(), three.endpoint.gateway);
  await networks.disconnect(sandbox.id, three.endpoint);
  assert.equal(wayOut(), sandbox.endpoint.gateway);
  await networks.disconnect(sandbox.id, sandbox.endpoint);
  assert.equal(wayOut(), two.endpoint.gateway);
  assert.equal(runInside(sandbox.path, 'ip', '-o', 'link').includes('eth0'), false);
  await networks.detach(sandbox.id, two.endpoint);
  await networks.removeSandbox(sandbox.id);
});

/** A request that is refused, and how. */
type Bad = readonly [request: NetworkRequest, kind: ErrorKind, message: RegExp];

function badKinds(): readonly Bad[] {
  return [
    [request('there'), 'conflict', /^network with name there already exists$/],
    [request('bridge'), 'forbidden', /^operation is not permitted on predefined bridge network/],
    [request(''), 'invalid', /name is empty/],
    [request('x', { driver: 'weave' }), 'not-found', /^plugin "weave" not found$/],
    [request('x', { ipam: { driver: 'infoblox', options: {} } }), 'not-found', /^plugin "infoblox" not found$/],
    [request('x', { driver: 'host' }), 'forbidden', /^only one instance of "host" network is allowed$/],
    [request('x', { driver: 'overlay' }), 'unavailable', /not a swarm manager/],
    [request('x', { configFrom: 'there' }), 'not-found', /^configuration network "there" does not exist$/],
    [
      request('x', { driver: 'macvlan', subnets: [], options: { parent: 'lo' } }),
      'invalid',
      /^loopback interface is not a valid macvlan parent link$/,
    ],
    [
      request('x', { driver: 'macvlan', subnets: [], options: { parent: 'nowhere' } }),
      'invalid',
      /^invalid subinterface vlan name nowhere, example formatting is eth0\.10$/,
    ],
    [
      request('x', { driver: 'macvlan', subnets: [], options: { parent: 'nowhere.7' } }),
      'invalid',
      /^failed to find master interface nowhere on the host$/,
    ],
    [
      request('x', { driver: 'ipvlan', subnets: [], options: { ipvlan_mode: 'l4' } }),
      'invalid',
      /^requested ipvlan mode 'l4' is not valid/,
    ],
  ];
}

const NONE_FREE = /^no available IPv[46] addresses on this network's address pools: /;
const six = (config: Parameters<typeof subnet>[0]): NetworkRequest =>
  request('x', { enableIpv6: true, subnets: [subnet(config)] });

/** @param taken is the subnet of the default bridge. */
function badSubnets(taken: string): readonly Bad[] {
  const own = someSubnet();
  const base = own.replace(/0\/24$/, '');
  return [
    [
      request('x', { subnets: [subnet({ subnet: own, gateway: `${base}9`, auxiliaryAddresses: { a: `${base}9` } })] }),
      'forbidden',
      /^failed to allocate secondary ip address \(a:/,
    ],
    [
      request('x', { subnets: [subnet({ subnet: taken })] }),
      'forbidden',
      /Pool overlaps with other one on this address space/,
    ],
    [
      request('x', { subnets: [subnet({ subnet: 'nonsense' })] }),
      'invalid',
      /invalid subnet nonsense: invalid CIDR block notation$/,
    ],
    [request('x', { subnets: [subnet({ subnet: own, gateway: '192.0.2.1' })] }), 'invalid', /gateway 192\.0\.2\.1/],
    [
      request('x', { subnets: [subnet({ subnet: own, ipRange: '192.0.2.0/28' })] }),
      'invalid',
      /ip-range 192\.0\.2\.0\/28/,
    ],
    [
      request('x', { subnets: [subnet({ subnet: own, auxiliaryAddresses: { a: '1.2.3.4' } })] }),
      'invalid',
      /invalid auxiliary address a: parent subnet .* doesn't contain this address/,
    ],
    [
      request('x', { subnets: [subnet({ subnet: own }), subnet({ subnet: someSubnet() })] }),
      'forbidden',
      /multiple subnets/,
    ],
    [six({ subnet: 'fd00:9::%e/64' }), 'invalid', /invalid subnet fd00:9::%e\/64: invalid CIDR/],
    [six({ subnet: 'fd00:9::/64', gateway: 'fd00:9::1%e' }), 'invalid', /invalid gateway fd00:9::1%e/],
    [six({ subnet: 'fd00:9::/64', auxiliaryAddresses: { a: 'fd00:9::5', b: 'fd00:9:0::5' } }), 'forbidden', /\(b:/],
    [six({ subnet: 'fd00:9::/127', auxiliaryAddresses: { a: 'fd00:9::', b: 'fd00:9::1' } }), 'unavailable', NONE_FREE],
    [six({ subnet: `${base}0/30`, auxiliaryAddresses: { a: `${base}1`, b: `${base}2` } }), 'unavailable', NONE_FREE],
    [
      request('x', { subnets: [subnet({ gateway: `${base}1` })] }),
      'invalid',
      /invalid subnet : invalid CIDR block notation/,
    ],
  ];
}

/** @param bridge is the name of the default bridge. */
function badOptions(bridge: string): readonly Bad[] {
  return [
    [
      request('x', { options: { 'com.engine.network.bridge.host_binding_ipv4': 'nonsense' } }),
      'invalid',
      /host_binding_ipv4 value: nonsense/,
    ],
    [
      request('x', { options: { 'com.engine.network.container_iface_prefix': '0/' } }),
      'invalid',
      /container_iface_prefix/,
    ],
    [request('x', { options: { 'com.docker.network.bridge.enable_icc': 'maybe' } }), 'invalid', /enable_icc/],
    ...['much-too-long-for-a-link', 'any+', 'any*', 'a"b', 'a;b', '..'].map((name): Bad => [
      request('x', { options: { 'com.docker.network.bridge.name': name } }),
      'invalid',
      /^invalid bridge name/,
    ]),
    [request('x', { options: { 'com.docker.network.driver.mtu': '10' } }), 'invalid', /driver\.mtu/],
    [
      request('x', { options: { 'com.docker.network.bridge.name': bridge } }),
      'forbidden',
      /networks have same bridge name$/,
    ],
    [
      request('x', { options: { 'com.docker.network.bridge.name': 'lo' } }),
      'invalid',
      /^existing interface lo is not a bridge$/,
    ],
  ];
}

test('bad requests are refused and leave nothing', async () => {
  const { plan, networks } = await start(
    { value: undefined },
    networkPlan(directory, { addressPools: [{ base: someSubnet(), size: 25 }] }),
  );
  const taken = plan.bip.replace(/1\/24$/, '0/25');
  await networks.create(request('there', { subnets: [] }));
  const bad = [...badKinds(), ...badSubnets(taken), ...badOptions(plan.bridge)];
  // Names alone: links that were just made may still be coming up, and those of tests before may still be going.
  const links = (): string[] =>
    execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' })
      .split('\n')
      .map((line) => /^\d+: ([^:@]*)/.exec(line)?.[1] ?? '');
  const before = new Set(links());
  for (const [wrong, kind, pattern] of bad)
    await assert.rejects(networks.create(wrong), fails(kind, pattern), JSON.stringify(wrong));
  assert.deepEqual(
    links().filter((name) => !before.has(name)),
    [],
  );
  assert.deepEqual(
    networks.list().map(({ name }) => name),
    ['bridge', 'host', 'none', 'there'],
  );
  await networks.create(request('second', { subnets: [] }));
  await assert.rejects(networks.create(request('third', { subnets: [] })), fails('unavailable', /fully subnetted/));
  await assert.rejects(
    networks.remove('bridge'),
    fails('forbidden', /^bridge is a pre-defined network and cannot be removed$/),
  );
  await assert.rejects(networks.remove('nowhere'), fails('not-found', /^network nowhere not found$/));
});

test('networks are there again after a restart, with their addresses', async () => {
  const identities = { value: undefined };
  const plan = networkPlan(directory);
  const first = networksOf(plan, silentLog, identities);
  await first.start();
  const made = await first.create(request('lasting', { labels: { keep: 'me' } }));
  await first.stop();
  assert.equal(execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' }).includes(made.id.slice(0, 12)), false);
  const { networks } = await start(identities, plan);
  assert.deepEqual(networks.resolve('lasting'), made);
  const sandbox = await attachSandbox(networks, [], { network: 'lasting' });
  assert.equal(ping(sandbox.path, sandbox.endpoint.gateway), true);
  await detachSandbox(networks, sandbox);
});

test('a subnet of version 6 may be written in any way, and is told as it was written', async () => {
  const identities = { value: undefined };
  const { networks, plan } = await start(identities);
  const group = randomBytes(2).toString('hex');
  const written = `FDA9:8d04:086e:0${group.slice(1)}::0/64`;
  const wanted = request('six', {
    enableIpv4: false,
    enableIpv6: true,
    subnets: [subnet({ subnet: written, gateway: `FDA9:8d04:086e:0${group.slice(1)}::00AA` })],
  });
  const made = await networks.create(wanted);
  assert.equal(made.subnets[0]?.subnet, written);
  const sandbox = await attachSandbox(networks, [], { network: 'six' });
  assert.match(sandbox.endpoint.ipv6, /^fda9:8d04:86e:/);
  assert.ok(ping(sandbox.path, sandbox.endpoint.ipv6Gateway));
  await assert.rejects(
    networks.create(
      request('other', {
        enableIpv4: false,
        enableIpv6: true,
        subnets: [subnet({ subnet: written.toLowerCase().replace('::0/', '::/') })],
      }),
    ),
    /Pool overlaps/,
  );
  await assert.rejects(
    networks.create(
      request('bits', {
        enableIpv4: false,
        enableIpv6: true,
        subnets: [subnet({ subnet: 'fda9:8d04:086e:1000::1/64' })],
      }),
    ),
    /invalid subnet fda9:8d04:086e:1000::1\/64: it should be fda9:8d04:86e:1000::\/64/,
  );
  await detachSandbox(networks, sandbox);
  await start(identities, plan).then(({ networks: next }) =>
    assert.equal(next.resolve('six').subnets[0]?.subnet, written),
  );
  await networks.remove('six');
});
