/** The name server inside sandboxes, over real namespaces. Needs root. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { HostNetworks } from '../../src/network/host-networks.js';
import type { AttachRequest } from '../../src/ports/network.js';
import { Cleanup } from '../support/cleanup.js';
import {
  attachSandbox,
  detachSandbox,
  endProcess,
  networkPlan,
  networksOf,
  outputInside,
  runInside,
  type Sandbox,
  startInside,
} from '../support/host-networks.js';
import { someSubnet } from '../support/network-requests.js';
import { silentLog } from '../support/silent-log.js';

const directory = mkdtempSync(join(tmpdir(), 'names-'));
const cleanup = new Cleanup();

after(async () => {
  await cleanup.run();
  rmSync(directory, { recursive: true });
});

async function start(internal: readonly string[] = []): Promise<HostNetworks> {
  const networks = networksOf(networkPlan(directory), silentLog);
  await networks.start();
  cleanup.add(async () => {
    for (const id of networks.sandboxIds()) await networks.removeSandbox(id);
    await networks.stop();
  });
  for (const [name, enableIpv6] of [
    ['back', true],
    ['front', false],
  ] as const) {
    await networks.create({
      name,
      driver: 'bridge',
      internal: internal.includes(name),
      attachable: false,
      enableIpv4: true,
      enableIpv6,
      ipam: { driver: 'default', options: {} },
      subnets: [{ subnet: someSubnet(), gateway: '', ipRange: '', auxiliaryAddresses: {} }],
      options: {},
      labels: {},
      configOnly: false,
      configFrom: '',
    });
  }
  return networks;
}

const attach = (
  networks: HostNetworks,
  network: string,
  names: readonly string[],
  changes: Partial<AttachRequest> = {},
): Promise<Sandbox> => attachSandbox(networks, [], { network, dnsNames: names, ...changes });

/** Returns what Node's own resolver inside the sandbox makes of a call, as JSON. */
async function lookup(sandbox: Sandbox, call: string): Promise<unknown> {
  const program = `const { Resolver } = require('node:dns/promises'); 
      const resolver = new Resolver({ timeout: 5000, tries: 1 }); resolver.setServers(['127.0.0.11']);
    resolver.${call}.then((result) => console.log(JSON.stringify(result)), 
      (error) => console.log(JSON.stringify(error.code)))`;
  return JSON.parse(await outputInside(sandbox.path, process.execPath, '-e', program));
}

/** A program that asks for an IPv4 address over a stream and prints it. */
function overStream(name: string): string {
  return `const name = Buffer.concat('${name}'.split('.')
      .map((label) => Buffer.from(String.fromCharCode(label.length) + label)));
    const query = Buffer.concat([Buffer.from([0, 16 + name.length + 1, 0, 23, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]), 
      name, Buffer.from([0, 0, 1, 0, 1])]);
    const socket = require('node:net').connect(53, '127.0.0.11', () => socket.write(query)); 
      socket.on('data', (data) => { console.log(data.subarray(-4).join('.')); socket.destroy(); })`;
}

/** A server in a sandbox that answers every A question with 192.0.2.7, over both transports. */
async function upstreamIn(sandbox: Sandbox): Promise<void> {
  const program = `
    const answer = (query) => { const end = query.indexOf(0, 12) + 5; 
      const reply = Buffer.concat([query.subarray(0, end), 
      Buffer.from([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 7])]); 
      reply.writeUInt16BE(0x8180, 2); reply.writeUInt16BE(1, 6); reply.writeUInt16BE(0, 10); return reply; };
    const socket = require('node:dgram').createSocket('udp4'); 
      socket.on('message', (query, peer) => socket.send(answer(query), peer.port, peer.address));
    require('node:net').createServer((client) => client.on('data', (data) => { 
      const reply = answer(data.subarray(2)); client.write(Buffer.from([reply.length >> 8, reply.length & 255])); 
      client.write(reply); })).listen(53, '0.0.0.0', () => socket.bind(53, '0.0.0.0', () => console.log('ready')));`;
  const child = startInside(sandbox.path, process.execPath, '-e', program);
  cleanup.add(() => endProcess(child));
  await once(child.stdout, 'data');
}

test('neighbours have names, over datagrams and streams; port 53 stays free; strangers have none', async () => {
  const networks = await start();
  const client = await attach(networks, 'back', ['client']);
  const [one, two, far] = await Promise.all([
    attach(networks, 'back', ['web-1', 'web']),
    attach(networks, 'back', ['web-2', 'Web']),
    attach(networks, 'front', ['far'], { nameservers: ['192.0.2.1'] }),
  ]);
  assert.deepEqual(await lookup(client, "resolve4('web-1')"), [one.endpoint.ipv4]);
  assert.deepEqual(
    ((await lookup(client, "resolve4('web')")) as string[]).sort(),
    [one.endpoint.ipv4, two.endpoint.ipv4].sort(),
  );
  assert.deepEqual(await lookup(client, "resolve6('web-1.back')"), [one.endpoint.ipv6]);
  assert.deepEqual(await lookup(far, "resolve6('far')"), 'ENODATA');
  assert.deepEqual(await lookup(client, `reverse('${one.endpoint.ipv4}')`), ['web-1.back']);
  assert.deepEqual(await lookup(client, `reverse('${one.endpoint.ipv6}')`), ['web-1.back']);
  assert.equal(
    (await outputInside(client.path, process.execPath, '-e', overStream('web-1'))).trim(),
    one.endpoint.ipv4,
  );
  const own =
    "require('node:dgram').createSocket('udp4').bind(53, '0.0.0.0', " +
    "function () { require('node:net').createServer().listen(53, '0.0.0.0', () => { console.log('free'); " +
    'process.exit() }) })';
  assert.equal((await outputInside(client.path, process.execPath, '-e', own)).trim(), 'free');
  await detachSandbox(networks, one);
  assert.deepEqual(await lookup(client, "resolve4('web')"), [two.endpoint.ipv4]);
  // A second network brings its names.
  const joined = await networks.attach({
    containerId: client.id,
    network: 'front',
    aliases: ['c'],
    dnsNames: ['client'],
    ports: [],
  });
  assert.deepEqual(await lookup(client, "resolve4('far')"), [far.endpoint.ipv4]);
  assert.deepEqual(await lookup(far, "resolve4('c')"), [joined.endpoint.ipv4]);
  await networks.disconnect(client.id, joined.endpoint);
  await detachSandbox(networks, client);
});

test('a name on several networks has its address on the one by which the client leaves', async () => {
  const cases = [
    { internal: [], first: 'front', second: 'back', expected: 'back' },
    { internal: [], first: 'back', second: 'front', gatewayPriority: 1, expected: 'front' },
    { internal: ['back'], first: 'back', second: 'front', expected: 'front' },
  ];
  for (const { internal, first, second, expected, gatewayPriority = 0 } of cases) {
    const networks = await start(internal);
    const onBoth = async (name: string): Promise<{ sandbox: Sandbox; addresses: Record<string, string> }> => {
      const sandbox = await attach(networks, first, [name]);
      const { endpoint } = await networks.attach({
        containerId: sandbox.id,
        network: second,
        gatewayPriority,
        aliases: [],
        dnsNames: [name],
        ports: [],
      });
      return { sandbox, addresses: { [first]: sandbox.endpoint.ipv4, [second]: endpoint.ipv4 } };
    };
    const [client, host] = [await onBoth('client'), await onBoth('host')];
    assert.deepEqual(await lookup(client.sandbox, "resolve4('host')"), [host.addresses[expected]], expected);
    for (const id of networks.sandboxIds()) await networks.removeSandbox(id);
    await networks.stop();
  }
});

test('other names are asked of the servers of the container; local names do not wait for dead ones', async () => {
  const networks = await start();
  const upstream = await attach(networks, 'back', ['upstream']);
  await upstreamIn(upstream);
  // The first server refuses at once: nothing listens on the gateway's port.
  const client = await attach(networks, 'back', ['client'], {
    nameservers: [upstream.endpoint.gateway, upstream.endpoint.ipv4],
  });
  assert.deepEqual(await lookup(client, "resolve4('example.org')"), ['192.0.2.7']);
  assert.equal(
    (await outputInside(client.path, process.execPath, '-e', overStream('example.org'))).trim(),
    '192.0.2.7',
  );
  // A server that stays silent: questions to it pile up, own names are answered meanwhile.
  const stuck = await attach(networks, 'back', ['stuck'], { nameservers: ['192.0.2.1'] });
  const query = `const query = (id, name) => Buffer.concat([
      Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, name.length]),
      Buffer.from(name), Buffer.from([0, 0, 1, 0, 1])]);
    const socket = require('node:dgram').createSocket('udp4');`;
  const load = startInside(
    stuck.path,
    process.execPath,
    '-e',
    `${query} let failed = 0, id = 0;
    socket.on('message', (reply) => { if ((reply[3] & 15) === 2 && ++failed === 100) console.log('refused'); });
    setInterval(() => { for (let count = 0; count < 25 && id < 5000; count++) 
      socket.send(query(++id, 'dead' + id), 53, '127.0.0.11'); }, 2);`,
  );
  cleanup.add(() => endProcess(load));
  // A question that finds no room is refused at once, not left without an answer.
  await once(load.stdout, 'data');
  const probe = `${query} const sent = new Map(); let id = 0, answered = 0;
    socket.on('message', (reply) => { if ((reply[3] & 15) === 0 && 
      sent.delete(reply.readUInt16BE(0)) && ++answered === 200) { console.log('answered'); process.exit(); } });
    setInterval(() => { sent.set(++id, performance.now()); socket.send(query(id, 'stuck'), 53, '127.0.0.11'); }, 2);`;
  assert.equal((await outputInside(stuck.path, process.execPath, '-e', probe)).trim(), 'answered');
  for (const sandbox of [upstream, client, stuck]) await detachSandbox(networks, sandbox);
});

test('questions over streams that nobody answers take few descriptors, however many a container asks', async () => {
  const networks = await start();
  const client = await attach(networks, 'back', ['client'], { nameservers: ['192.0.2.1'] });
  const descriptors = (): number => readdirSync('/proc/self/fd').length;
  const before = descriptors();
  const load = startInside(
    client.path,
    process.execPath,
    '-e',
    `const query = Buffer.from([0, 22, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, 100, 101, 97, 100, 0, 0, 1, 0, 1]);
    let bytes = 0;
    for (let count = 0; count < 30; count++) { 
      const socket = require('node:net').connect(53, '127.0.0.11', () => socket.write(Buffer.alloc(query.length * 60,
        query))); 
      socket.on('data', (data) => { bytes += data.length; if (bytes >= 500 * query.length) console.log('refused'); }); }
    setInterval(() => 0, 1000);`,
  );
  cleanup.add(() => endProcess(load));
  await once(load.stdout, 'data');
  const taken = descriptors() - before;
  assert.ok(taken < 30 + 32 + 50, `${taken} descriptors`);
  await endProcess(load);
  await detachSandbox(networks, client);
});

test("a container's own packet filter sees port 53 and answers to what it let out", async () => {
  const networks = await start();
  const client = await attach(networks, 'back', ['client']);
  const rules = [
    ['-P', 'OUTPUT', 'DROP'],
    ['-A', 'OUTPUT', '-m', 'conntrack', '--ctstate', 'ESTABLISHED', '-j', 'ACCEPT'],
    ...['udp', 'tcp'].map((protocol) => [
      '-A',
      'OUTPUT',
      '-d',
      '127.0.0.11',
      '-p',
      protocol,
      '--dport',
      '53',
      '-j',
      'ACCEPT',
    ]),
  ];
  for (const rule of rules) runInside(client.path, 'iptables', ...rule);
  assert.deepEqual(await lookup(client, "resolve4('client')"), [client.endpoint.ipv4]);
  assert.equal(
    (await outputInside(client.path, process.execPath, '-e', overStream('client'))).trim(),
    client.endpoint.ipv4,
  );
  await detachSandbox(networks, client);
});

test('an internal network asks nobody else', async () => {
  const networks = await start(['back', 'front']);
  const client = await attach(networks, 'back', ['client'], { nameservers: ['192.0.2.1'] });
  assert.deepEqual(await lookup(client, "resolve4('client')"), [client.endpoint.ipv4]);
  assert.deepEqual(await lookup(client, "resolve4('example.org')"), 'ESERVFAIL');
  await detachSandbox(networks, client);
});
