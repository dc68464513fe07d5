/** Many starts at once while the daemon is killed: no port twice, none that stays, nothing left of what was begun. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { listNetns } from '../../src/sys/process/netns.js';
import { Cleanup } from '../support/cleanup.js';
import { askEcho, startEchoServer } from '../support/echo-server.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { runInside } from '../support/host-networks.js';
import { call, callJson } from '../support/http.js';
import { testedRules } from '../support/tested-backend.js';
import { waitFor } from '../support/wait.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

/** Half of them on the default bridge, half on a user network. ENGINE_NETWORK_STARTS=200 takes some minutes. */
const STARTS = Number(process.env['ENGINE_NETWORK_STARTS'] ?? 6);
/** How many may be running when the daemon is killed; the first time they are only just beginning. */
const KILLS_AT = [0, STARTS / 6, STARTS / 2] as const;

const cleanup = new Cleanup();
const bridge = `engk${randomBytes(3).toString('hex')}`;
let engine: Engine;

before(async () => {
  engine = await Engine.start(await withImage(engined({ args: ['--bridge', bridge, '--live-restore'] })));
  cleanup.add(() => engine.discard());
});
after(() => cleanup.run());

interface Listed {
  readonly Id: string;
  readonly State: string;
  readonly Ports: readonly { readonly IP?: string; readonly PublicPort?: number }[];
  readonly NetworkSettings: {
    readonly Networks: Readonly<Record<string, { readonly IPAddress: string; readonly NetworkID: string }>>;
  };
}

const list = (): Promise<Listed[]> => callJson<Listed[]>(engine.socketPath, 'GET', '/containers/json?all=1');
const runningOnes = async (): Promise<Listed[]> => (await list()).filter(({ State }) => State === 'running');
const linksOf = (master: string): number =>
  execFileSync('ip', ['-o', 'link', 'show', 'master', master], { encoding: 'utf8' }).split('\n').filter(Boolean).length;
const listening = (): Set<number> =>
  new Set(
    [...execFileSync('ss', ['-Hltn4'], { encoding: 'utf8' }).matchAll(/ 0\.0\.0\.0:(\d+) /g)].map(([, port]) =>
      Number(port),
    ),
  );
const translated = (): number[] =>
  [...testedRules().matchAll(/dport (\d+) (?:dnat|-j DNAT) /g)].map(([, port]) => Number(port));
const numerically = (numbers: Iterable<number>): number[] => [...numbers].sort((a, b) => a - b);

/** The daemon says just what the kernel and the disk have, at once when it answers. */
async function check(): Promise<void> {
  const running = await runningOnes();
  const ports = running.flatMap(({ Ports }) =>
    Ports.filter(({ IP }) => IP === '0.0.0.0').map(({ PublicPort }) => PublicPort ?? 0),
  );
  assert.equal(ports.length, running.length, 'each has its port');
  assert.equal(new Set(ports).size, ports.length, 'no port is given twice');
  const heard = listening();
  assert.deepEqual(
    ports.filter((port) => !heard.has(port)),
    [],
    'each port is held',
  );
  assert.deepEqual(numerically(translated()), numerically(ports), 'no port but these is open');
  const addresses = running.flatMap(({ NetworkSettings }) =>
    Object.values(NetworkSettings.Networks).map(({ IPAddress, NetworkID }) => `${NetworkID} ${IPAddress}`),
  );
  assert.equal(new Set(addresses).size, addresses.length, 'no address is given twice');
  const namespaces = join(engine.dir, 'exec', 'netns');
  await waitFor(
    () =>
      `no link and namespace but those of ${running.length} containers: ` +
      `${linksOf(bridge)} and ${linksOf('engkuser')} links, ${listNetns(namespaces).length} namespaces`,
    () => linksOf(bridge) + linksOf('engkuser') === running.length && listNetns(namespaces).length === running.length,
    30_000,
  );
}

test(
  `${STARTS} starts at once with ports of the ephemeral range, and kill -9 in between`,
  { timeout: 600_000 },
  async () => {
    await engineOk(engine, ['network', 'create', '-o', 'com.docker.network.bridge.name=engkuser', 'user']);
    const created = await Promise.all(
      Array.from({ length: STARTS }, (_, index) =>
        callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
          json: {
            Image: SEEDED_IMAGE,
            Cmd: ['sleep', '6000'],
            ExposedPorts: { '80/tcp': {} },
            HostConfig: { PublishAllPorts: true, NetworkMode: index % 2 === 0 ? 'user' : 'bridge' },
          },
        }),
      ),
    );
    const startAll = (): Promise<unknown> =>
      Promise.all(
        created.map(({ Id }) => call(engine.socketPath, 'POST', `/containers/${Id}/start`).catch(() => undefined)),
      );
    for (const count of KILLS_AT) {
      const starting = startAll();
      if (count === 0)
        await waitFor(
          'namespaces to be made',
          () => listNetns(join(engine.dir, 'exec', 'netns')).length > 0,
          60_000,
          1,
        );
      else await waitFor('some to run', async () => (await runningOnes()).length >= count, 300_000);
      await engine.stop('SIGKILL');
      await starting;
      await engine.start();
      await check();
    }
    const replies = await Promise.all(
      created.map(({ Id }) => call(engine.socketPath, 'POST', `/containers/${Id}/start`)),
    );
    assert.deepEqual(
      replies.filter(({ status }) => status !== 204 && status !== 304).map(({ body }) => String(body)),
      [],
      'all can be started',
    );
    await check();
    assert.equal((await runningOnes()).length, STARTS);
    // A restart with all of them, in order this time: ports go on as they were.
    const portsOf = async (): Promise<string> => JSON.stringify((await list()).map(({ Id, Ports }) => [Id, Ports]));
    const before = await portsOf();
    const [first] = created;
    const port = (await list()).find(({ Id }) => Id === first?.Id)?.Ports[0]?.PublicPort ?? 0;
    const stop = await startEchoServer(join(engine.dir, 'exec', 'netns', first?.Id ?? ''), [80], []);
    try {
      await engine.stop();
      await engine.start();
      assert.equal(await portsOf(), before);
      assert.match((await askEcho(undefined, [{ protocol: 'tcp', host: '127.0.0.1', port }]))[0] ?? '', /^80 /);
    } finally {
      await stop();
    }
    await check();
  },
);

test('a network being joined or left when the daemon dies is joined or not; the way out is there', async () => {
  const id = await engineOk(engine, ['run', '-d', '--name', 'joining', '-p', '80', SEEDED_IMAGE, 'sleep', '6000']);
  const netns = join(engine.dir, 'exec', 'netns', id);
  await engineOk(engine, ['network', 'create', '-o', 'com.docker.network.bridge.name=engkjoin', 'joined']);
  const isConnected = async (): Promise<boolean> =>
    (await engineOk(engine, ['inspect', '-f', '{{json .NetworkSettings.Networks}}', 'joining'])).includes('"joined"');
  const connect = { path: '/networks/joined/connect', json: { Container: id, EndpointConfig: { GwPriority: 1 } } };
  const disconnect = { path: '/networks/joined/disconnect', json: { Container: id } };
  const stop = await startEchoServer(netns, [80], []);
  try {
    for (let round = 0; round < 4; round++) {
      const { path, json } = (await isConnected()) ? disconnect : connect;
      const changing = call(engine.socketPath, 'POST', path, { json }).catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, (round * 6) % 25));
      await engine.stop('SIGKILL');
      await changing;
      await engine.start();
      const links = (await isConnected()) ? 1 : 0;
      assert.equal(linksOf('engkjoin'), links);
      assert.equal(runInside(netns, 'ip', '-o', 'link').split('\n').filter(Boolean).length, 2 + links);
      assert.match(
        runInside(netns, 'ip', 'route', 'show', 'default'),
        links === 1 ? /dev eth1/ : /dev eth0/,
        'it leaves by the network with the higher priority',
      );
      const port = Number((await engineOk(engine, ['port', id, '80'])).split('\n')[0]?.split(':').at(-1));
      assert.match((await askEcho(undefined, [{ protocol: 'tcp', host: '127.0.0.1', port }]))[0] ?? '', /^80 /);
      // A connection that was promised can be changed again.
      const next = links === 1 ? disconnect : connect;
      if (round % 2 === 1)
        assert.equal((await call(engine.socketPath, 'POST', next.path, { json: next.json })).status, 200);
    }
  } finally {
    await stop();
  }
});

test('nothing is left', async () => {
  await Promise.all((await list()).map(({ Id }) => call(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`)));
  await engineOk(engine, ['network', 'prune', '-f']);
  assert.deepEqual(listNetns(join(engine.dir, 'exec', 'netns')), []);
  assert.deepEqual(translated(), []);
  await engine.close();
  assert.equal(existsSync(engine.dir), false);
});
