/**
 * How bridge networks are reached and left, by their gateway mode: seen from another machine that has a route to them.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { askEcho, startEchoServer } from '../support/echo-server.js';
import { type Place, placeOf } from '../support/container-place.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined, isTestingDockerd } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call } from '../support/http.js';
import { openOutside, type Outside } from '../support/outside.js';
import { operatorDrops } from '../support/tested-backend.js';

const HOST = { 4: '10.215.9.1', 6: '2001:db8:215:9::1' } as const;
const OUTSIDE = { 4: '10.215.9.2', 6: '2001:db8:215:9::2' } as const;
const FAMILIES = [4, 6] as const;

const directory = mkdtempSync(join(tmpdir(), 'modes-'));
const cleanup = new Cleanup();
/** Flags of the next start. */
const flags: string[] = [];
let engine: Engine;
let image: string;
let outside: Outside;
const ok = (...args: string[]): Promise<string> => engineOk(engine, args);

before(async () => {
  writeFileSync('/proc/sys/net/ipv6/conf/all/forwarding', '1');
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  outside = openOutside(directory, {
    here: [`${HOST[4]}/24`, `${HOST[6]}/64`],
    there: [`${OUTSIDE[4]}/24`, `${OUTSIDE[6]}/64`],
  });
  cleanup.add(async () => outside.remove());
  ({ engine, image } = await startEngineWithImage(cleanup, isTestingDockerd() ? undefined : engined({ args: flags })));
});
after(() => cleanup.run());

async function serve(mode: string, body: (server: Place) => Promise<void>): Promise<void> {
  await ok(
    'network',
    'create',
    '--ipv6',
    '-o',
    `com.docker.network.bridge.gateway_mode_ipv4=${mode}`,
    '-o',
    `com.engine.network.bridge.gateway_mode_ipv6=${mode}`,
    '-o',
    'com.docker.network.bridge.name=engmode',
    '--subnet',
    '10.215.1.0/24',
    '--subnet',
    '2001:db8:215:1::/64',
    'moded',
  );
  await ok('run', '-d', '--name', 'server', '--network', 'moded', '-p', '8088:80', image, 'sleep', '1000');
  const place = await placeOf(engine, 'server');
  const stop = await startEchoServer(place.netns, [80, 81], []);
  try {
    await body(place);
  } finally {
    await stop();
    await ok('rm', '-f', 'server');
    await ok('network', 'rm', 'moded');
  }
}

/** Returns what another machine gets from an address: the port that answered, and who it saw; '-' for nothing. */
async function fromOutside(host: string, port: number): Promise<string> {
  const [answer = ''] = await askEcho(outside.path, [{ protocol: 'tcp', host, port }], 1000);
  return /^\d+ /.test(answer) ? answer : '-';
}

test('nat: the published port of the host alone; another machine sees the host in place of the container', () =>
  serve('nat', async ({ netns, address }) => {
    const stop = await startEchoServer(outside.path, [99], []);
    try {
      for (const family of FAMILIES) {
        assert.equal(await fromOutside(HOST[family], 8088), `80 ${OUTSIDE[family]}`);
        for (const port of [80, 81])
          assert.equal(await fromOutside(address[family], port), '-', `IPv${family} ${port}`);
        assert.deepEqual(await askEcho(netns, [{ protocol: 'tcp', host: OUTSIDE[family], port: 99 }]), [
          `99 ${HOST[family]}`,
        ]);
      }
    } finally {
      await stop();
    }
  }));

test("rules of the operator come before the engine's: what they drop does not reach a published port", () =>
  serve('nat', async () => {
    const lift = operatorDrops('engmode', OUTSIDE[4]);
    try {
      assert.equal(await fromOutside(HOST[4], 8088), '-');
      assert.equal(await fromOutside(HOST[6], 8088), `80 ${OUTSIDE[6]}`);
    } finally {
      lift();
    }
    assert.equal(await fromOutside(HOST[4], 8088), `80 ${OUTSIDE[4]}`);
  }));

test('nat with --allow-direct-routing: besides, the published port of the container', async (t) => {
  if (isTestingDockerd()) return t.skip('its flags stay');
  flags.push('--allow-direct-routing');
  await engine.stop();
  await engine.start();
  await serve('nat', async ({ address }) => {
    for (const family of FAMILIES) {
      assert.equal(await fromOutside(HOST[family], 8088), `80 ${OUTSIDE[family]}`);
      assert.equal(await fromOutside(address[family], 80), `80 ${OUTSIDE[family]}`);
      assert.equal(await fromOutside(address[family], 81), '-', `IPv${family}`);
    }
  });
  flags.pop();
  await engine.stop();
  await engine.start();
});

test('nat-unprotected: besides, every port of the container', () =>
  serve('nat-unprotected', async ({ address }) => {
    for (const family of FAMILIES) {
      assert.equal(await fromOutside(HOST[family], 8088), `80 ${OUTSIDE[family]}`);
      for (const port of [80, 81]) assert.equal(await fromOutside(address[family], port), `${port} ${OUTSIDE[family]}`);
    }
  }));

test('routed: the published port of the container, none of the host, and nobody is masked', () =>
  serve('routed', async ({ netns, address }) => {
    const stop = await startEchoServer(outside.path, [99], []);
    try {
      for (const family of FAMILIES) {
        assert.equal(await fromOutside(address[family], 80), `80 ${OUTSIDE[family]}`);
        assert.equal(await fromOutside(address[family], 81), '-', `IPv${family}`);
        assert.equal(await fromOutside(HOST[family], 8088), '-', `IPv${family}`);
        assert.deepEqual(await askEcho(netns, [{ protocol: 'tcp', host: OUTSIDE[family], port: 99 }]), [
          `99 ${address[family]}`,
        ]);
        execFileSync('nsenter', [`--net=${outside.path}`, 'busybox', 'ping', '-c', '1', '-W', '2', address[family]], {
          stdio: 'ignore',
        });
      }
    } finally {
      await stop();
    }
    assert.deepEqual(JSON.parse(await ok('inspect', '-f', '{{json .NetworkSettings.Ports}}', 'server')), {
      '80/tcp': [
        { HostIp: '0.0.0.0', HostPort: '' },
        { HostIp: '::', HostPort: '' },
      ],
    });
    assert.equal(execFileSync('ss', ['-Hltn', 'sport', '=', ':8088'], { encoding: 'utf8' }), '');
    // The daemon goes and comes back: the ports are those that they were.
    await engine.stop('SIGKILL');
    await engine.start();
    for (const family of FAMILIES) assert.equal(await fromOutside(address[family], 80), `80 ${OUTSIDE[family]}`);
  }));

test('isolated: the host has no address on an internal network', async () => {
  await ok(
    'network',
    'create',
    '--internal',
    '--ipv6',
    '-o',
    'com.docker.network.bridge.gateway_mode_ipv4=isolated',
    '-o',
    'com.docker.network.bridge.gateway_mode_ipv6=isolated',
    '-o',
    'com.docker.network.bridge.name=engalone',
    '--subnet',
    '10.215.2.0/24',
    'alone',
  );
  assert.doesNotMatch(execFileSync('ip', ['addr', 'show', 'engalone'], { encoding: 'utf8' }), /inet/);
  for (const name of ['one', 'two'])
    await ok('run', '-d', '--name', name, '--network', 'alone', image, 'sleep', '1000');
  const [address = '', gateway = ''] = (
    await ok(
      'inspect',
      '-f',
      '{{with index .NetworkSettings.Networks "alone"}}{{.IPAddress}} {{.Gateway}}{{end}}',
      'one',
    )
  ).split(' ');
  assert.deepEqual([address, gateway], ['10.215.2.1', '']);
  assert.match(await ok('exec', 'two', 'ping', '-c', '1', '-W', '2', 'one'), /1 packets received/);
  assert.doesNotMatch(await ok('exec', 'two', 'ip', 'route'), /default/);
  await ok('rm', '-f', 'one', 'two');
  await ok('network', 'rm', 'alone');
});

test('modes that there are not, or that the network cannot have', async () => {
  const refused = async (mode: string, message: string, options: readonly string[] = []): Promise<void> => {
    const { stderr } = await attempt(engine, [
      'network',
      'create',
      ...options,
      '-o',
      `com.docker.network.bridge.gateway_mode_ipv4=${mode}`,
      'refused',
    ]);
    assert.ok(stderr.includes(message), stderr);
  };
  await refused(
    'routing',
    'failed to parse com.docker.network.bridge.gateway_mode_ipv4 value: routing (unknown gateway mode routing)',
  );
  await refused('isolated', "gateway mode 'isolated' can only be used for an internal network");
  assert.equal(
    (
      await call(engine.socketPath, 'POST', '/networks/create', {
        json: { Name: 'refused', Options: { 'com.docker.network.bridge.gateway_mode_ipv6': 'x' } },
      })
    ).status,
    400,
  );
  assert.doesNotMatch(await ok('network', 'ls', '--format', '{{.Name}}'), /refused/);
});
