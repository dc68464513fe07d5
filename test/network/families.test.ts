/** Which address families networks and containers have, and what follows for names and published ports. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call } from '../support/http.js';

const OPTION = 'com.docker.network.enable_ipv';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
const ok = (...args: string[]): Promise<string> => engineOk(engine, args);

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

async function create(body: Readonly<Record<string, unknown>>): Promise<string> {
  const reply = await call(engine.socketPath, 'POST', '/networks/create', { json: { Name: 'families', ...body } });
  if (reply.status !== 201) return `${reply.status} ${(JSON.parse(reply.text) as { message: string }).message}`;
  const shown = await ok('network', 'inspect', '-f', '{{.EnableIPv4}} {{.EnableIPv6}} {{json .Options}}', 'families');
  await ok('network', 'rm', 'families');
  return shown;
}

test('driver options say which families a network has, unless the request itself does', async () => {
  const both = { [`${OPTION}4`]: 'false', [`${OPTION}6`]: 'true' };
  assert.equal(await create({ Options: both }), `false true ${JSON.stringify(both)}`);
  assert.equal(await create({ Options: { [`${OPTION}6`]: '1' } }), `true true {"${OPTION}6":"1"}`);
  assert.equal(await create({ EnableIPv4: true, EnableIPv6: false, Options: both }), 'true false {}');
  for (const value of ['', 'x'])
    assert.equal(
      await create({ Options: { [`${OPTION}6`]: value } }),
      `400 driver-opt "${OPTION}6" is not a valid bool`,
    );
  assert.equal(await create({ Options: { [`${OPTION}4`]: 'false' } }), '400 IPv4 or IPv6 must be enabled');
});

test('a container that disables IPv6 has no address of it, no names, and nobody finds it there', async () => {
  await ok('network', 'create', '--ipv6', '--subnet', 'fd00:1234::/64', '--subnet', '10.216.1.0/24', 'both');
  const run = (name: string, ...more: string[]): Promise<string> =>
    ok('run', '-d', '--name', name, '-h', name, '--network', 'both', ...more, image, 'sleep', '1000');
  await run('without', '--sysctl', 'net.ipv6.conf.all.disable_ipv6=1');
  await run('with');
  const addresses = '{{range .NetworkSettings.Networks}}{{.IPAddress}} {{.GlobalIPv6Address}}{{end}}';
  assert.equal(await ok('inspect', '-f', addresses, 'without'), '10.216.1.2 ');
  assert.equal(await ok('inspect', '-f', addresses, 'with'), '10.216.1.3 fd00:1234::2');
  assert.equal(await ok('exec', 'without', 'cat', '/etc/hosts'), '127.0.0.1\tlocalhost\n10.216.1.2\twithout');
  assert.match(await ok('exec', 'with', 'cat', '/etc/hosts'), /^fe00::\tip6-localnet$/m);
  assert.doesNotMatch((await attempt(engine, ['exec', 'with', 'nslookup', '-type=aaaa', 'without'])).stdout, /fd00:/);
  const refused = await attempt(engine, ['network', 'rm', 'both']);
  assert.match(
    refused.stderr,
    /network both has active endpoints \(name:"without" id:"[0-9a-f]{12}", name:"with" id:"[0-9a-f]{12}"\)/,
  );
  await ok('rm', '-f', 'without', 'with');
  await ok('network', 'rm', 'both');
});

test("who shares the machine's network has its names, unless it names hosts of its own", async () => {
  const hosts = (...more: string[]): Promise<string> =>
    ok('run', '--rm', '--network', 'host', ...more, image, 'cat', '/etc/hosts');
  assert.equal((await hosts()).trim(), readFileSync('/etc/hosts', 'utf8').trim());
  assert.match(await hosts('--add-host', 'other:192.0.2.9'), /^127\.0\.0\.1\tlocalhost\n[^]*\n192\.0\.2\.9\tother$/);
});

test('a family that is routed is not translated, and a network with both families is the way out', async () => {
  const network = (name: string, subnets: readonly string[], ...more: string[]): Promise<string> =>
    ok('network', 'create', ...subnets.flatMap((subnet) => ['--subnet', subnet]), ...more, name);
  const mode = (family: number): string[] => ['-o', `com.docker.network.bridge.gateway_mode_ipv${family}=routed`];
  await network('single', ['10.216.2.0/24']);
  await network('sixth', ['10.216.3.0/24', 'fd00:3::/64'], '--ipv6', ...mode(6));
  await network('routed', ['10.216.4.0/24', 'fd00:4::/64'], '--ipv6', ...mode(4), ...mode(6));
  const ports = async (networks: readonly string[], ip: string): Promise<string> => {
    const names = networks.flatMap((name) => ['--network', name]);
    await ok('run', '-d', '--name', 'server', ...names, '-p', `${ip}8100:80`, image, 'sleep', '1000');
    const shown = await ok('inspect', '-f', '{{json .NetworkSettings.Ports}}', 'server');
    await ok('rm', '-f', 'server');
    const bindings = (JSON.parse(shown) as Record<string, { HostIp: string; HostPort: string }[]>)['80/tcp'] ?? [];
    return bindings
      .map(({ HostIp, HostPort }) => `${HostIp} ${HostPort}`)
      .sort()
      .join(', ');
  };
  assert.equal(await ports(['sixth'], ''), '0.0.0.0 8100, :: ');
  assert.equal(await ports(['routed'], '127.0.0.1:'), '0.0.0.0 ');
  assert.equal(await ports(['single', 'routed'], ''), '0.0.0.0 , :: ');
  assert.equal(await ports(['single', 'sixth'], '[::]:'), ':: ');
});
