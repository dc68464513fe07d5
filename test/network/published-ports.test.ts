/**
 * Published ports from everywhere: {IPv4, IPv6} x {default bridge, user network} x {tcp, udp, range} x {the host,
 * another machine, the container itself, a neighbour, a container elsewhere}, with and without the userland proxy:
 * reachable or not, and with which source address. The table is what the known engine does; `ENGINE_UNDER_TEST=dockerd`
 * checks it.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import { dockerd } from '../support/dockerd.js';
import { askEcho, startEchoServer, type Protocol, type Question } from '../support/echo-server.js';
import { type Place, placeOf } from '../support/container-place.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined, isTestingDockerd } from '../support/engined.js';
import { endProcess, startInside } from '../support/host-networks.js';
import { openOutside, type Outside } from '../support/outside.js';
import { arrivingPort } from '../support/sctp.js';
import { waitFor } from '../support/wait.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

const HOST = { 4: '10.216.9.1', 6: '2001:db8:216:9::1' } as const;
const OUTSIDE = { 4: '10.216.9.2', 6: '2001:db8:216:9::2' } as const;
const BRIDGES = {
  bridge: { 4: '10.216.0.1', 6: '2001:db8:216::1' },
  user: { 4: '10.216.1.1', 6: '2001:db8:216:1::1' },
} as const;

const directory = mkdtempSync(join(tmpdir(), 'ports-'));
const cleanup = new Cleanup();
let image: string;
let outside: Outside;

before(async () => {
  // Else the daemon switches it on and, as it should, leaves a policy that refuses what no rule lets through.
  writeFileSync('/proc/sys/net/ipv6/conf/all/forwarding', '1');
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  outside = openOutside(directory, {
    here: [`${HOST[4]}/24`, `${HOST[6]}/64`],
    there: [`${OUTSIDE[4]}/24`, `${OUTSIDE[6]}/64`],
  });
  cleanup.add(async () => outside.remove());
});
after(() => cleanup.run());

async function start(proxy: boolean): Promise<Engine> {
  const args = [
    `--userland-proxy=${proxy}`,
    '--bip',
    `${BRIDGES.bridge[4]}/24`,
    '--ipv6',
    '--fixed-cidr-v6',
    '2001:db8:216::/64',
  ];
  const started = await startEngineWithImage(
    cleanup,
    isTestingDockerd() ? dockerd({ args: [...args, '--experimental', '--ip6tables'] }) : engined({ args }),
  );
  image = started.image;
  const { engine } = started;
  await engineOk(engine, [
    'network',
    'create',
    '--ipv6',
    '--subnet',
    '10.216.1.0/24',
    '--subnet',
    '2001:db8:216:1::/64',
    'user',
  ]);
  return engine;
}

/** Returns the address that the server sees, '-' when it is not reached. */
function expected(proxy: boolean, family: 4 | 6, what: string, from: string, to: string): string {
  if (what === 'loopback') return to === 'loopback' && (proxy || family === 4) ? 'gateway' : '-';
  // Loopback addresses are translated in IPv4 alone.
  if (to === 'loopback') return proxy || family === 4 ? 'gateway' : '-';
  if (from === 'outside') return 'outside';
  if (from === 'host') return proxy || family === 6 ? 'host' : 'gateway';
  if (from === 'elsewhere') return 'gateway';
  // The proxy answers datagrams from the address that is nearest to the client.
  if (proxy) return what === 'udp' && to === 'host' ? '-' : 'gateway';
  return from === 'neighbour' ? 'neighbour' : 'gateway';
}

/** Where the known engine reaches less: other networks of its own, and it hides the host in IPv6. */
function peerReachesLess(proxy: boolean, family: 4 | 6, what: string, from: string): boolean {
  return from === 'elsewhere' ? !proxy || what === 'udp' : !proxy && family === 6 && from === 'host';
}

interface Peer extends Place {
  readonly name: string;
}

async function run(engine: Engine, name: string, network: string, ...options: readonly string[]): Promise<Peer> {
  await engineOk(engine, ['run', '-d', '--name', name, '--network', network, ...options, image, 'sleep', '600']);
  return { name, ...(await placeOf(engine, name)) };
}

/** One server with published ports, and who is around it. */
interface Scene {
  readonly proxy: boolean;
  readonly network: 'bridge' | 'user';
  readonly server: Peer;
  readonly neighbour: Peer;
  readonly elsewhere: Peer;
}

/** A question from one place. */
interface Attempt {
  readonly from: string;
  readonly to: string;
  readonly family: 4 | 6;
  readonly what: string;
  readonly inside: number;
  readonly question: Question;
}

const PUBLISHED = ['8080:80', '8080:80/udp', '8091-8092:91-92', '[::1]:8070:80', '127.0.0.1:8070:80'].flatMap(
  (port) => ['-p', port],
);
const PORTS: readonly [what: string, protocol: Protocol, port: number, inside: number][] = [
  ['tcp', 'tcp', 8080, 80],
  ['udp', 'udp', 8080, 80],
  ['range', 'tcp', 8092, 92],
  ['loopback', 'tcp', 8070, 80],
];

/** The names of the addresses that a server may see. */
function namesOf({ network, server, neighbour, elsewhere }: Scene, family: 4 | 6): Readonly<Record<string, string>> {
  return {
    [HOST[family]]: 'host',
    [OUTSIDE[family]]: 'outside',
    [BRIDGES[network][family]]: 'gateway',
    [server.address[family]]: 'server',
    [neighbour.address[family]]: 'neighbour',
    [elsewhere.address[family]]: 'elsewhere',
    // The proxy reaches a container over IPv4 that was asked for over IPv6 where it listens on that alone.
    [BRIDGES[network][4]]: 'gateway',
  };
}

/** All that is asked in a scene, by the namespace from which it is. */
function attemptsOf({ network, server, neighbour, elsewhere }: Scene): Map<string | undefined, Attempt[]> {
  const attempts = new Map<string | undefined, Attempt[]>();
  for (const family of [4, 6] as const) {
    const ways: [from: string, netns: string | undefined, to: string, address: string][] = [
      ['host', undefined, 'loopback', family === 4 ? '127.0.0.1' : '::1'],
      ['host', undefined, 'host', HOST[family]],
      ['outside', outside.path, 'host', HOST[family]],
      ['server', server.netns, 'host', HOST[family]],
      ['server', server.netns, 'gateway', BRIDGES[network][family]],
      ['neighbour', neighbour.netns, 'host', HOST[family]],
      ['neighbour', neighbour.netns, 'gateway', BRIDGES[network][family]],
      ['elsewhere', elsewhere.netns, 'host', HOST[family]],
    ];
    for (const [from, netns, to, host] of ways)
      for (const [what, protocol, port, inside] of PORTS) {
        const attempt = { from, to, family, what, inside, question: { protocol, host, port } };
        attempts.set(netns, [...(attempts.get(netns) ?? []), attempt]);
      }
  }
  return attempts;
}

/** Asks from everywhere, one process for each place, and tells what is not as expected. */
async function wrongAnswers(engine: Engine, scene: Scene): Promise<string[]> {
  const { proxy, network, server } = scene;
  const names = { 4: namesOf(scene, 4), 6: namesOf(scene, 6) };
  const answers = await Promise.all(
    [...attemptsOf(scene)].map(async ([netns, attempts]) => {
      const said = await askEcho(
        netns,
        attempts.map(({ question }) => question),
      );
      return attempts.flatMap(({ from, to, family, what, inside }, index) => {
        const [answered, source] = said[index]?.split(' ') ?? [];
        if (engine.name === 'dockerd' && peerReachesLess(proxy, family, what, from)) return [];
        if (source !== undefined) assert.equal(Number(answered), inside, `${what} leads to its own port`);
        const shown = source === undefined ? '-' : (names[family][source] ?? source);
        const wanted = expected(proxy, family, what, from, to);
        return shown === wanted
          ? []
          : [`${network} IPv${family} ${what} from ${from} to ${to}: ${shown}, not ${wanted}`];
      });
    }),
  );
  // A port that is not published is not reachable from outside, whatever routes there are.
  if (engine.name === 'engined') {
    const unpublished = ([4, 6] as const).map((family) => ({
      protocol: 'tcp' as const,
      host: server.address[family],
      port: 80,
    }));
    for (const answer of await askEcho(outside.path, unpublished, 800))
      assert.match(answer, /timeout|E[A-Z]+/, 'unpublished');
  }
  return answers.flat();
}

/** Where there is no socket to hold the port it is the rules that publish it, with the proxy or without. */
async function translatesSctp(engine: Engine): Promise<void> {
  for (const network of ['bridge', 'user'] as const) {
    const server = await run(engine, 'server', network, '-p', '8093:93/sctp');
    for (const family of [4, 6] as const) {
      assert.equal(await arrivingPort(outside.path, server.netns, HOST[family], 8093), 93, `${network} IPv${family}`);
      assert.equal(
        await arrivingPort(outside.path, server.netns, HOST[family], 8094),
        undefined,
        `${network} IPv${family}, not published`,
      );
    }
    await engineOk(engine, ['rm', '-f', 'server']);
  }
}

/** A client that goes on sending reaches the container that has the port now. */
async function followsDatagrams(engine: Engine): Promise<void> {
  const server = await run(engine, 'server', 'bridge', '-p', '8080:80/udp');
  // From one port, all the time: what the kernel knows of it never ends by itself.
  const sender = startInside(
    outside.path,
    process.execPath,
    '-e',
    `
    const socket = require('node:dgram').createSocket('udp4');
    socket.on('message', (data) => console.log(String(data)));
    socket.on('error', () => undefined);
    socket.bind(40000, () => setInterval(() => socket.send('?', 8080, '${HOST[4]}'), 50));`,
  );
  let heard = '';
  sender.stdout.on('data', (data: Buffer) => (heard += data.toString()));
  try {
    const stopFirst = await startEchoServer(server.netns, [], [80]);
    await waitFor('an answer', () => heard !== '');
    await stopFirst();
    await engineOk(engine, ['rm', '-f', 'server']);
    // Somebody else has the address by then.
    await run(engine, 'other', 'bridge');
    heard = '';
    const second = await run(engine, 'second', 'bridge', '-p', '8080:80/udp');
    const stopSecond = await startEchoServer(second.netns, [], [80]);
    await waitFor('an answer of the second', () => heard !== '');
    await stopSecond();
  } finally {
    await endProcess(sender);
  }
  await engineOk(engine, ['rm', '-f', 'other', 'second']);
}

/** One server after the other, on each kind of network. */
async function answersAsExpected(engine: Engine, proxy: boolean): Promise<void> {
  const wrong: string[] = [];
  for (const network of ['bridge', 'user'] as const) {
    const server = await run(engine, `server-${network}`, network, ...PUBLISHED);
    const neighbour = await run(engine, `neighbour-${network}`, network);
    const elsewhere = await run(engine, `elsewhere-${network}`, network === 'user' ? 'bridge' : 'user');
    const stop = await startEchoServer(server.netns, [80, 91, 92], [80]);
    try {
      wrong.push(...(await wrongAnswers(engine, { proxy, network, server, neighbour, elsewhere })));
    } finally {
      await stop();
    }
    await engineOk(engine, ['rm', '-f', server.name, neighbour.name, elsewhere.name]);
    const refused = await askEcho(
      undefined,
      [8080, 8092].map((port) => ({ protocol: 'tcp', host: '127.0.0.1', port })),
    );
    assert.deepEqual(refused, ['ECONNREFUSED', 'ECONNREFUSED'], 'ports go with their container');
  }
  assert.deepEqual(wrong, []);
}

for (const proxy of [true, false]) {
  describe(`${proxy ? 'with' : 'without'} the userland proxy`, () => {
    let engine: Engine;
    before(async () => {
      engine = await start(proxy);
    });
    afterEach(() => removeContainers(engine));
    after(async () => {
      await engineOk(engine, ['network', 'rm', 'user']);
      await engine.close();
    });

    test('each place reaches what it may, and is seen with its address', () => answersAsExpected(engine, proxy));

    if (!proxy) return;
    test('sctp: translated for other machines', () => translatesSctp(engine));

    test('a client that goes on sending datagrams reaches the container that has the port now', () =>
      followsDatagrams(engine));
  });
}
