/** Options of single endpoints: names and kernel parameters of their links, further addresses. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

const SYSCTLS = 'com.docker.network.endpoint.sysctls';
const NAME = 'com.docker.network.endpoint.ifname';
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
  await engineOk(engine, ['network', 'create', '--subnet', '10.215.1.0/24', 'front']);
  await engineOk(engine, ['network', 'create', '--subnet', '10.215.2.0/24', 'back']);
});
after(() => cleanup.run());

interface Shown {
  readonly Config: { readonly MacAddress?: string };
  readonly HostConfig: { readonly Sysctls?: Readonly<Record<string, string>> };
  readonly NetworkSettings: {
    readonly MacAddress: string;
    readonly Networks: Readonly<Record<string, { readonly DriverOpts: unknown; readonly MacAddress: string }>>;
  };
}

const inside = (name: string, ...command: readonly string[]): Promise<string> =>
  engineOk(engine, ['exec', name, ...command]).then((text) => text.trim());
const create = async (
  path: string,
  json: object,
): Promise<{ status: number; message?: string; Id?: string; Warnings?: string[] }> => {
  const { status, text } = await call(engine.socketPath, 'POST', path, {
    json: { Image: image, Cmd: ['sleep', '600'], StopTimeout: 0, ...json },
  });
  return { status, ...(JSON.parse(text) as object) };
};
const remove = (name: string): Promise<unknown> => callJson(engine.socketPath, 'DELETE', `/containers/${name}?force=1`);

test('links have the names, parameters and addresses that are asked for, at the start and at a connect', async () => {
  const made = await create('/containers/create?name=router', {
    HostConfig: { NetworkMode: 'front' },
    NetworkingConfig: {
      EndpointsConfig: {
        front: { IPAMConfig: { LinkLocalIPs: ['169.254.7.7', 'fe80::7'] } },
        back: {
          DriverOpts: {
            [NAME]: 'eth0',
            'com.engine.network.endpoint.sysctls':
              'net.ipv4.conf.IFNAME.log_martians=1,net.ipv6.conf.ifname.disable_ipv6=0',
          },
        },
      },
    },
  });
  assert.equal(made.status, 201, made.message);
  await callJson(engine.socketPath, 'POST', '/containers/router/start');
  // The other link is numbered around the name that is taken.
  assert.match(await inside('router', 'ip', '-o', '-4', 'addr', 'show', 'eth0'), /10\.215\.2\.2\/24/);
  const front = await inside('router', 'ip', '-o', 'addr', 'show', 'eth1');
  for (const address of ['10.215.1.2/24', '169.254.7.7/16', 'fe80::7/64'])
    assert.ok(front.includes(address), `${address} in ${front}`);
  assert.equal(
    await inside(
      'router',
      'cat',
      '/proc/sys/net/ipv4/conf/eth0/log_martians',
      '/proc/sys/net/ipv4/conf/eth1/log_martians',
    ),
    '1\n0',
  );
  assert.match(
    await inside('router', 'ip', '-o', '-6', 'addr', 'show', 'eth0'),
    /fe80:/,
    'who asks for IPv6 on a link gets its link-local address',
  );

  await engineOk(engine, [
    'network',
    'connect',
    '--driver-opt',
    `${NAME}=wan0`,
    '--driver-opt',
    `${SYSCTLS}=net.ipv4.conf.IFNAME.forwarding=0`,
    'bridge',
    'router',
  ]);
  assert.match(await inside('router', 'ip', '-o', '-4', 'addr', 'show', 'wan0'), /inet/);
  assert.equal(await inside('router', 'cat', '/proc/sys/net/ipv4/conf/wan0/forwarding'), '0');
  await engineOk(engine, ['network', 'disconnect', 'bridge', 'router']);
  assert.doesNotMatch(await inside('router', 'ip', '-o', 'link'), /wan0/);

  // The next daemon knows them, too, and the next start.
  await engine.stop('SIGKILL');
  await engine.start();
  await engineOk(engine, ['network', 'disconnect', 'back', 'router']);
  await engineOk(engine, ['network', 'connect', '--driver-opt', `${NAME}=lan0`, 'back', 'router']);
  await engineOk(engine, ['restart', '-t', '0', 'router']);
  assert.match(await inside('router', 'ip', '-o', '-4', 'addr', 'show', 'lan0'), /10\.215\.2\./);
  await remove('router');
});

const opts = (...all: Record<string, string>[]) => ({
  HostConfig: { NetworkMode: 'front' },
  NetworkingConfig: {
    EndpointsConfig: Object.fromEntries(all.map((DriverOpts, index) => [['front', 'back'][index], { DriverOpts }])),
  },
});
const UNRECOGNISED = new RegExp(
  "^invalid endpoint settings:\\nunrecognised network interface sysctl '.*'; represent 'net\\.X\\.Y\\.ethN\\.Z=V' " +
    "as 'net\\.X\\.Y\\.IFNAME\\.Z=V', 'X' must be 'ipv4', 'ipv6' or 'mpls'$",
);
/** Endpoints cannot have these options, and they are refused so. */
const REFUSED: readonly [body: object, message: RegExp][] = [
  [opts({ [SYSCTLS]: 'net.ipv4.conf.eth0.forwarding=1' }), UNRECOGNISED],
  [opts({ [SYSCTLS]: 'net.core.conf.IFNAME.x=1' }), UNRECOGNISED],
  [opts({ [SYSCTLS]: 'net.ipv4.conf.IFNAME./../../../kernel/hostname=x' }), UNRECOGNISED],
  [opts({ [SYSCTLS]: 'a,b' }), /^invalid endpoint settings:\n\* unrecognised .*'a'.*\n\* unrecognised .*'b'/],
  [
    opts({ [SYSCTLS]: 'net.ipv4.conf.IFNAME.forwarding' }),
    /^invalid endpoint settings:\nexpected sysctl 'net\.ipv4\.conf\.IFNAME\.forwarding' to have format name=value$/,
  ],
  [opts({ [NAME]: 'far-too-long-a-name' }), /invalid interface name 'far-too-long-a-name'/],
  [opts({ [NAME]: '../x' }), /invalid interface name/],
  [opts({ [NAME]: 'lo' }), /invalid interface name/],
  [opts({ [NAME]: 'same' }, { [NAME]: 'same' }), /several endpoints ask for the interface name 'same'/],
  [
    {
      HostConfig: { NetworkMode: 'front' },
      NetworkingConfig: { EndpointsConfig: { front: { IPAMConfig: { LinkLocalIPs: ['x'] } } } },
    },
    /^invalid endpoint settings:\ninvalid link-local IP address: x$/,
  ],
  [
    {
      HostConfig: { NetworkMode: 'front' },
      NetworkingConfig: {
        EndpointsConfig: { front: { IPAMConfig: { LinkLocalIPs: ['10.1.1.1', 'fe80::1', '2001:db8::1'] } } },
      },
    },
    /settings:\n\* invalid link-local IP address: 10\.1\.1\.1\n\* invalid link-local IP address: 2001:db8::1$/,
  ],
  [
    {
      HostConfig: { NetworkMode: 'front' },
      NetworkingConfig: { EndpointsConfig: { front: { IPAMConfig: { IPv4Address: '0.0.0.0', IPv6Address: '::' } } } },
    },
    /^invalid endpoint settings:\n\* invalid IPv4 address: 0\.0\.0\.0\n\* invalid IPv6 address: ::\n\* no configured /,
  ],
  [
    {
      NetworkingConfig: {
        EndpointsConfig: { bridge: { Aliases: ['x'], IPAMConfig: { IPv4Address: '172.17.0.9' } } },
      },
    },
    /^invalid endpoint settings:\n\* user specified IP address .*\n\* network-scoped alias /,
  ],
  [
    {
      HostConfig: { NetworkMode: 'front' },
      NetworkingConfig: { EndpointsConfig: { front: { IPAMConfig: { IPv4Address: '192.0.2.200' } } } },
    },
    /^invalid endpoint settings:\nno configured subnet or ip-range contain the IP address 192\.0\.2\.200$/,
  ],
];

test('what an endpoint cannot have is refused, and nothing is made', async () => {
  for (const [body, message] of REFUSED) {
    const answer = await create('/containers/create', body);
    assert.equal(answer.status, 400, JSON.stringify(body));
    const [, network, problem] = /^invalid config for network (\w+): (.*)$/s.exec(answer.message ?? '') ?? [];
    // A problem between several networks names none of them.
    assert.match(problem ?? answer.message ?? '', message);
    assert.equal(network === undefined, message.source.startsWith('several'), answer.message);
  }
  await create('/containers/create?name=plain', { HostConfig: { NetworkMode: 'front' } });
  await callJson(engine.socketPath, 'POST', '/containers/plain/start');
  const before = await inside('plain', 'ip', '-o', 'addr');
  const connect = async (DriverOpts: object): Promise<string> => {
    const { status, text } = await call(engine.socketPath, 'POST', '/networks/back/connect', {
      json: { Container: 'plain', EndpointConfig: { DriverOpts } },
    });
    return `${status} ${(JSON.parse(text) as { message: string }).message}`;
  };
  assert.match(await connect({ [SYSCTLS]: 'x' }), /^400 invalid endpoint settings:\nunrecognised/);
  assert.match(await connect({ [NAME]: 'eth0' }), /^409 the container has an interface eth0 already$/);
  // Only the kernel knows these.
  assert.match(
    await connect({ [SYSCTLS]: 'net.ipv4.conf.IFNAME.nonsense=1' }),
    /^500 .*\/proc\/sys\/net\/ipv4\/conf\/eth1\/nonsense is not a sysctl file/,
  );
  assert.match(
    await connect({ [SYSCTLS]: 'net.ipv4.conf.IFNAME.forwarding=many' }),
    /^500 .*unable to write to '\/proc\/sys\/net\/ipv4\/conf\/eth1\/forwarding'/,
  );
  assert.equal(await inside('plain', 'ip', '-o', 'addr'), before);
  await remove('plain');
});

test('parameters of eth0 in the container as a whole move to its endpoint, for clients up to 1.47', async () => {
  const host = {
    NetworkMode: 'front',
    Sysctls: { 'net.ipv4.conf.eth0.log_martians': '1', 'net.ipv4.ip_forward': '0' },
  };
  const moved = await create('/v1.47/containers/create?name=old', { HostConfig: host });
  assert.deepEqual(
    [moved.status, moved.Warnings],
    [
      201,
      [
        'Migrated sysctl "net.ipv4.conf.eth0.log_martians" to ' +
          `DriverOpts{"${SYSCTLS}":"net.ipv4.conf.IFNAME.log_martians=1"}.`,
      ],
    ],
  );
  const { HostConfig, NetworkSettings } = await callJson<Shown>(engine.socketPath, 'GET', '/containers/old/json');
  assert.deepEqual(
    [HostConfig.Sysctls, NetworkSettings.Networks['front']?.DriverOpts],
    [{ 'net.ipv4.ip_forward': '0' }, { [SYSCTLS]: 'net.ipv4.conf.IFNAME.log_martians=1' }],
  );
  await callJson(engine.socketPath, 'POST', '/containers/old/start');
  assert.equal(
    await inside('old', 'cat', '/proc/sys/net/ipv4/conf/eth0/log_martians', '/proc/sys/net/ipv4/ip_forward'),
    '1\n0',
  );
  await remove('old');
  const refused = async (version: string, json: object): Promise<string> =>
    (await create(`/v${version}/containers/create`, json)).message ?? '';
  assert.equal(
    await refused('1.48', { HostConfig: host }),
    'interface specific sysctl setting "net.ipv4.conf.eth0.log_martians" must be supplied using driver ' +
      `option '${SYSCTLS}'`,
  );
  assert.match(
    await refused('1.47', {
      HostConfig: { NetworkMode: 'front', Sysctls: { 'net.ipv4.conf.eth1.log_martians': '1' } },
    }),
    /^unable to determine network endpoint for sysctl net\.ipv4\.conf\.eth1\.log_martians/,
  );
  assert.match(
    await refused('1.47', { HostConfig: host, NetworkingConfig: { EndpointsConfig: { back: {} } } }),
    /^unable to find a network for sysctl .*HostConfig\.NetworkMode must match the identity of a network/,
  );
});

test('a MAC address of the container is that of its endpoint, and shown as both', async () => {
  const address = '02:42:0a:d7:01:99';
  // An address is shown for the container as it was written, and for the endpoint in one way.
  for (const [version, written] of [
    ['1.43', address],
    ['1.43', '0242.0AD7.0199'],
    ['1.51', '02-42-0a-D7-01-99'],
  ] as const) {
    const { Warnings } = await create(`/v${version}/containers/create?name=mac`, {
      MacAddress: written,
      HostConfig: { NetworkMode: 'front' },
    });
    assert.equal(Warnings?.length, version === '1.43' ? 0 : 1);
    await callJson(engine.socketPath, 'POST', '/containers/mac/start');
    assert.equal(await inside('mac', 'cat', '/sys/class/net/eth0/address'), address);
    const { Config, NetworkSettings } = await callJson<Shown>(
      engine.socketPath,
      'GET',
      `/v${version}/containers/mac/json`,
    );
    assert.deepEqual([Config.MacAddress, NetworkSettings.Networks['front']?.MacAddress], [written, address]);
    await remove('mac');
  }
  // On the default bridge it is shown a third time, also before the container has run.
  for (const version of ['1.43', '1.51']) {
    await create(`/v${version}/containers/create?name=mac`, { MacAddress: address });
    const { NetworkSettings } = await callJson<Shown>(engine.socketPath, 'GET', `/v${version}/containers/mac/json`);
    assert.equal(NetworkSettings.MacAddress, address);
    await remove('mac');
  }
  const twice = {
    MacAddress: address,
    HostConfig: { NetworkMode: 'front' },
    NetworkingConfig: { EndpointsConfig: { front: { MacAddress: '02:42:0a:d7:01:98' } } },
  };
  assert.match(
    (await create('/containers/create', { MacAddress: '02:42-0a:d7:01:99' })).message ?? '',
    /invalid MAC address 02:42-0a:d7:01:99$/,
  );
  assert.match(
    (await create('/containers/create', twice)).message ?? '',
    /^the container-wide MAC address must match the endpoint-specific MAC address/,
  );
  assert.equal((await create('/v1.43/containers/create?name=mac', twice)).status, 201);
  assert.equal(
    (await callJson<Shown>(engine.socketPath, 'GET', '/containers/mac/json')).NetworkSettings.Networks['front']
      ?.MacAddress,
    address,
  );
  await remove('mac');
});
