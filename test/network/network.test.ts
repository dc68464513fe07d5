/** The network driver with real namespaces, links and iptables. Needs root. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isEngineError } from '../../src/errors/engine-error.js';
import type { PublishedPort } from '../../src/ports/network.js';
import { Cleanup } from '../support/cleanup.js';
import {
  attachAndCrash,
  attachSandbox,
  detachSandbox,
  driverRules,
  endProcess,
  flushDriverRules,
  foreignRules,
  networkPlan,
  networksOf,
  outputInside,
  runInside,
  startInside,
  type Sandbox,
} from '../support/host-networks.js';
import { silentLog } from '../support/silent-log.js';
import { waitFor } from '../support/wait.js';

const directory = mkdtempSync(join(tmpdir(), 'network-'));
const cleanup = new Cleanup();

after(async () => {
  await cleanup.run();
  rmSync(directory, { recursive: true });
});

async function startNetworks(changes: Parameters<typeof networkPlan>[1] = {}) {
  const plan = networkPlan(directory, changes);
  const networks = networksOf(plan, silentLog);
  await networks.start();
  cleanup.add(async () => {
    for (const id of networks.sandboxIds()) await networks.removeSandbox(id);
    await networks.stop();
  });
  return { plan, networks };
}

const tcp = (containerPort: number, hostPort = 0, hostIp = ''): PublishedPort => ({
  protocol: 'tcp',
  containerPort,
  hostIp,
  hostPort,
});

/** All links of the host. */
function linkNames(): string[] {
  const lines = execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' }).trim().split('\n');
  return lines.map((line) => line.split(': ')[1] ?? line);
}

/** Returns the answer of a server that tells every client its name. */
function ask(host: string, port: number): Promise<string> {
  const socket = connect(port, host);
  socket.setTimeout(5000, () => socket.destroy(new Error(`${host}:${port} stays silent`)));
  return text(socket);
}

async function serve(sandbox: Sandbox, port: number, answer: string): Promise<void> {
  const program =
    `require('node:net').createServer((client) => client.end('${answer}')).listen(${port}, '::', ` +
    "() => console.log('ready'))";
  const child = startInside(sandbox.path, process.execPath, '-e', program);
  cleanup.add(() => endProcess(child));
  await once(child.stdout, 'data');
}

const linkExists = (name: string): boolean =>
  existsSync(`/sys/class/net/${name}`) || execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' }).includes(` ${name}`);

test('a sandbox has its address, MAC, MTU and route, and loopback is up', async () => {
  const { plan, networks } = await startNetworks();
  const sandbox = await attachSandbox(networks);
  const { endpoint } = sandbox;
  assert.match(endpoint.endpointId, /^[0-9a-f]{64}$/);
  assert.equal(endpoint.gateway, plan.bip.split('/')[0]);
  assert.equal(
    endpoint.macAddress,
    `02:42:${endpoint.ipv4
      .split('.')
      .map((part) => Number(part).toString(16).padStart(2, '0'))
      .join(':')}`,
  );
  const address = runInside(sandbox.path, 'ip', '-o', 'addr');
  assert.match(address, / eth0\s+inet 10\.\d+\.\d+\.2\/24 brd 10\.\d+\.\d+\.255 /);
  assert.match(address, / lo\s+inet 127\.0\.0\.1\/8 /);
  const link = runInside(sandbox.path, 'ip', '-o', 'link', 'show', 'eth0');
  assert.match(link, /LOWER_UP.* mtu 1400 /);
  assert.ok(link.includes(endpoint.macAddress));
  assert.match(runInside(sandbox.path, 'ip', 'route'), new RegExp(`^default via ${endpoint.gateway} dev eth0`, 'm'));
  assert.ok(linkExists(`veth${endpoint.endpointId.slice(0, 7)}`));
  await detachSandbox(networks, sandbox);
  assert.equal(existsSync(sandbox.path), false);
  await waitFor('the link to go with its namespace', () => !linkExists(`veth${endpoint.endpointId.slice(0, 7)}`));
});

test('two sandboxes reach each other and the gateway; addresses are not reused at once', async () => {
  const { networks } = await startNetworks();
  const [one, two] = await Promise.all([attachSandbox(networks), attachSandbox(networks)]);
  assert.notEqual(one.endpoint.ipv4, two.endpoint.ipv4);
  for (const target of [two.endpoint.ipv4, one.endpoint.gateway])
    assert.match(runInside(one.path, 'busybox', 'ping', '-c1', '-W2', target), /1 packets received/);
  await detachSandbox(networks, two);
  const three = await attachSandbox(networks);
  assert.notEqual(three.endpoint.ipv4, two.endpoint.ipv4);
  await Promise.all([one, three].map((sandbox) => detachSandbox(networks, sandbox)));
});

/** A connection that the listener has taken just before its end is reset. */
function closed(port: number): Promise<unknown> {
  const refused = (error: NodeJS.ErrnoException): boolean => error.code === 'ECONNREFUSED';
  return waitFor('the port to be closed', () => ask('127.0.0.1', port).then(() => false, refused));
}

test('a published port is reached from the host', async () => {
  const { networks } = await startNetworks();
  const server = await attachSandbox(networks, [tcp(80)]);
  const [port] = server.ports;
  assert.ok(port && port.hostPort > 0);
  assert.equal(port.hostIp, '0.0.0.0');
  await serve(server, 80, 'web');
  assert.equal(await ask('127.0.0.1', port.hostPort), 'web');
  assert.equal(await ask(server.endpoint.gateway, port.hostPort), 'web');
  await detachSandbox(networks, server);
  await closed(port.hostPort);
});

for (const userlandProxy of [true, false]) {
  const way = userlandProxy ? 'with a proxy' : 'without a proxy';
  test(`a published port is reached from a neighbour and from the container itself, ${way}`, async () => {
    const { networks } = await startNetworks({ userlandProxy });
    const [server, client] = await Promise.all([attachSandbox(networks, [tcp(80)]), attachSandbox(networks)]);
    const port = server.ports[0]?.hostPort ?? 0;
    await serve(server, 80, 'web');
    // Not to its end in one step: the proxy, where it serves them, is in this process.
    for (const from of [client, server])
      assert.equal(
        await outputInside(from.path, 'busybox', 'nc', '-w', '3', server.endpoint.gateway, String(port)),
        'web',
      );
    assert.equal(await ask('127.0.0.1', port), 'web');
    assert.equal(await ask(server.endpoint.gateway, port), 'web');
    await Promise.all([server, client].map((sandbox) => detachSandbox(networks, sandbox)));
  });
}

test('a port that is taken is refused with the known text, and nothing stays', async () => {
  const { plan, networks } = await startNetworks();
  const holder = await attachSandbox(networks, [tcp(80)]);
  const taken = holder.ports[0]?.hostPort ?? 0;
  const before = linkNames();
  await assert.rejects(attachSandbox(networks, [tcp(81), tcp(80, taken)]), (error) => {
    assert.ok(isEngineError(error));
    assert.match(
      error.message,
      new RegExp(
        'driver failed programming external connectivity on endpoint web \\([0-9a-f]{64}\\): ' +
          `Bind for 0\\.0\\.0\\.0:${taken} failed: port is already allocated$`,
      ),
    );
    return true;
  });
  // Links of earlier tests may go meanwhile.
  assert.deepEqual(
    linkNames().filter((name) => !before.includes(name)),
    [],
  );
  assert.equal(
    driverRules(plan).filter(
      (line) => /dnat( --)? ?to/i.test(line) && line.includes(` ${plan.bip.replace(/\.1\/24$/, '.')}`),
    ).length,
    1,
  );
  await detachSandbox(networks, holder);
});

test('a port on an address that the host lacks is refused with the known text', async () => {
  const { networks } = await startNetworks();
  for (const [hostIp, shown] of [
    ['192.0.2.77', '192\\.0\\.2\\.77'],
    ['2001:db8::77', '\\[2001:db8::77\\]'],
  ] as const) {
    await assert.rejects(
      attachSandbox(networks, [{ ...tcp(80, 8080), hostIp }]),
      new RegExp(`: failed to bind host port for ${shown}:8080:[\\d.]+:80/tcp: cannot assign requested address$`),
    );
  }
});

test(
  'without inter-container communication neighbours are cut off, the gateway is not',
  { skip: !existsSync('/proc/sys/net/bridge/bridge-nf-call-iptables') },
  async () => {
    const { networks } = await startNetworks({ icc: false });
    const [one, two] = await Promise.all([attachSandbox(networks), attachSandbox(networks)]);
    assert.throws(() => runInside(one.path, 'busybox', 'ping', '-c1', '-W1', two.endpoint.ipv4));
    assert.match(runInside(one.path, 'busybox', 'ping', '-c1', '-W2', one.endpoint.gateway), /1 packets received/);
    await Promise.all([one, two].map((sandbox) => detachSandbox(networks, sandbox)));
  },
);

test(
  'IPv6: addresses, published ports of both families with one number, the proxy from IPv4-only containers',
  { skip: !existsSync('/proc/sys/net/ipv6') },
  async () => {
    const { plan, networks } = await startNetworks({ ipv6: true });
    const [server, client] = await Promise.all([attachSandbox(networks, [tcp(80)]), attachSandbox(networks)]);
    assert.match(server.endpoint.ipv6, /^fd/);
    assert.deepEqual(
      server.ports.map(({ hostIp }) => hostIp),
      ['0.0.0.0', '::'],
    );
    assert.equal(server.ports[0]?.hostPort, server.ports[1]?.hostPort);
    assert.match(
      runInside(client.path, 'busybox', 'ping', '-6', '-c1', '-W2', server.endpoint.ipv6),
      /1 packets received/,
    );
    assert.match(
      runInside(client.path, 'ip', '-6', 'route'),
      new RegExp(`^default via ${server.endpoint.ipv6Gateway} dev eth0`, 'm'),
    );
    const port = server.ports[0]?.hostPort ?? 0;
    await serve(server, 80, 'six');
    for (const host of ['127.0.0.1', '::1', server.endpoint.gateway, server.endpoint.ipv6Gateway])
      assert.equal(await ask(host, port), 'six', host);
    const target = ` [${server.endpoint.ipv6}]:80`;
    assert.ok(driverRules(plan, 6).some((line) => line.includes(`dport ${port} `) && line.includes(target)));
    await Promise.all([server, client].map((sandbox) => detachSandbox(networks, sandbox)));
    const { networks: four } = await startNetworks();
    const plain = await attachSandbox(four, [tcp(80)]);
    assert.doesNotMatch(runInside(plain.path, 'ip', '-6', '-o', 'addr', 'show', 'dev', 'eth0'), /inet6/);
    await serve(plain, 80, 'four');
    assert.equal(await ask('::1', plain.ports[1]?.hostPort ?? 0), 'four');
    await detachSandbox(four, plain);
  },
);

test('foreign rules stay byte for byte; after stop nothing is left', async () => {
  const plan = networkPlan(directory);
  const chain = `FOREIGN-${plan.bridge.slice(4)}`;
  execFileSync('iptables', ['-w', '-N', chain]);
  execFileSync('iptables', [
    '-w',
    '-A',
    chain,
    '-s',
    '192.0.2.1',
    '-m',
    'comment',
    '--comment',
    'not yours',
    '-j',
    'DROP',
  ]);
  cleanup.add(() => {
    execFileSync('iptables', ['-w', '-F', chain]);
    execFileSync('iptables', ['-w', '-X', chain]);
    return Promise.resolve();
  });
  const networks = networksOf(plan, silentLog);
  const before = foreignRules();
  await networks.start();
  const sandbox = await attachSandbox(networks, [tcp(80)]);
  assert.equal(foreignRules(), before);
  await detachSandbox(networks, sandbox);
  await networks.stop();
  assert.equal(foreignRules(), before);
  assert.equal(linkExists(plan.bridge), false);
  assert.deepEqual(driverRules(plan), []);
});

test('without iptables no rule is touched', async () => {
  const plan = networkPlan(directory, { iptables: false });
  const before = execFileSync('iptables-save', { encoding: 'utf8' })
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\[\d+:\d+\]/g, '');
  const networks = networksOf(plan, silentLog);
  await networks.start();
  const sandbox = await attachSandbox(networks, [tcp(80)]);
  await serve(sandbox, 80, 'plain');
  // The proxy alone serves it.
  assert.equal(await ask('127.0.0.1', sandbox.ports[0]?.hostPort ?? 0), 'plain');
  assert.equal(
    execFileSync('iptables-save', { encoding: 'utf8' })
      .replaceAll(/^#.*\n/gm, '')
      .replaceAll(/\[\d+:\d+\]/g, ''),
    before,
  );
  await detachSandbox(networks, sandbox);
  await networks.stop();
});

test('what others flush is put back', async () => {
  const plan = networkPlan(directory);
  const networks = networksOf(plan, silentLog);
  await networks.start();
  const sandbox = await attachSandbox(networks, [tcp(80)]);
  const rules = (): string => driverRules(plan).join('\n');
  const before = rules();
  assert.notEqual(before, '');
  flushDriverRules(plan);
  assert.notEqual(rules(), before);
  await waitFor('the rules to be back', () => rules() === before);
  await detachSandbox(networks, sandbox);
  await networks.stop();
});

test('after a crash endpoints and ports are taken over', async () => {
  const plan = networkPlan(directory);
  const child = fileURLToPath(new URL('../support/crashing-networks.js', import.meta.url));
  const { sandboxes, identities } = await attachAndCrash(child, plan, [[tcp(80)], []]);
  const [server, other] = sandboxes;
  assert.ok(server && other);
  await serve(server, 80, 'survivor');
  const networks = networksOf(plan, silentLog, { value: identities });
  await networks.start();
  for (const { id, endpoint, ports } of sandboxes) await networks.adopt(id, endpoint, ports);
  const port = server.ports[0]?.hostPort ?? 0;
  assert.equal(await ask('127.0.0.1', port), 'survivor');
  assert.equal(await ask(server.endpoint.gateway, port), 'survivor');
  const fresh = await attachSandbox(networks);
  assert.ok(sandboxes.every(({ endpoint }) => endpoint.ipv4 !== fresh.endpoint.ipv4));
  await assert.rejects(attachSandbox(networks, [tcp(80, port)]), /port is already allocated/);
  for (const sandbox of [fresh, ...sandboxes]) await detachSandbox(networks, sandbox);
  await closed(port);
  assert.deepEqual(networks.sandboxIds(), []);
  await networks.stop();
  assert.equal(linkExists(plan.bridge), false);
});
