/** Every network flag of the daemon, as the kernel shows it: links, addresses, routes, rules and switches. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { load, refused } from '../support/configurations.js';
import { removeContainers } from '../support/container-removal.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { FlaggedDaemons, type Scene } from '../support/flagged-daemons.js';
import { callJson } from '../support/http.js';
import { ip, links, rules, withSwitch } from '../support/kernel-network.js';

const daemons = new FlaggedDaemons();

/** The name that a DNS query asks for. */
function nameIn(query: Buffer): string {
  const labels: string[] = [];
  for (let at = 12; (query[at] ?? 0) > 0; at += (query[at] ?? 0) + 1)
    labels.push(query.toString('latin1', at + 1, at + 1 + (query[at] ?? 0)));
  return labels.join('.');
}

const isMasqueraded = (bridge: string): boolean => rules('iptables').includes(`! -o ${bridge} -j MASQUERADE`);

const IPV4_FORWARD = '/proc/sys/net/ipv4/ip_forward';
const IPV6_FORWARD = '/proc/sys/net/ipv6/conf/all/forwarding';

/** Whether the kernel forwards, and what it does with what no rule is about, while a daemon runs. */
const forwarding = (): readonly [isOn: boolean, policy: string | undefined] => [
  readFileSync(IPV4_FORWARD, 'utf8').trim() === '1',
  /^:FORWARD (\w+)/m.exec(rules('iptables'))?.[1],
];

const accept = (): void => void execFileSync('iptables', ['-P', 'FORWARD', 'ACCEPT']);

/**
 * Runs a daemon on a machine that forwards, or does not, and accepts what no rule is about. Forwarding is switched on,
 * with a policy to drop, unless it is on already or the flags say otherwise.
 */
async function withForwarding(initially: '0' | '1', body: () => Promise<void>): Promise<void> {
  accept();
  await withSwitch(IPV4_FORWARD, initially, body).finally(accept);
}

test('bip, bip6, fixed-cidr, default-gateway, mtu and ipv6 are the addresses of bridge and containers', () =>
  withSwitch(IPV6_FORWARD, '1', () =>
    daemons.with(
      (
        '--bip 10.218.0.1/16 --fixed-cidr 10.218.7.0/24 --default-gateway 10.218.0.9 --ipv6 --bip6 fd00:218::1/64 ' +
        '--fixed-cidr-v6 fd00:218::7:0/112 --default-gateway-v6 fd00:218::9 --mtu 1380'
      ).split(' '),
      async (scene) => {
        const addresses = ip('-o', 'addr', 'show', scene.bridge);
        assert.match(addresses, /inet 10\.218\.0\.1\/16 /);
        assert.match(addresses, /inet6 fd00:218::1\/64 /);
        assert.match(ip('-o', 'link', 'show', scene.bridge), / mtu 1380 /);
        assert.ok(isMasqueraded(scene.bridge));
        assert.ok(rules('ip6tables').includes(scene.bridge));
        await scene.run('one', '--add-host', 'above:host-gateway');
        // Nothing was said about host-gateway: it is the bridge, and not the gateway that containers are given.
        assert.deepEqual((await scene.inside('one', 'grep', 'above', '/etc/hosts')).split('\n'), [
          '10.218.0.1\tabove',
          'fd00:218::1\tabove',
        ]);
        const own = await scene.inside('one', 'ip', '-o', 'addr', 'show', 'eth0');
        assert.match(own, /inet 10\.218\.7\.\d+\/16 /);
        assert.match(own, /inet6 fd00:218::7:[0-9a-f]+\/64 /);
        assert.match(await scene.inside('one', 'ip', 'route'), /default via 10\.218\.0\.9 /);
        assert.match(await scene.inside('one', 'ip', '-6', 'route'), /default via fd00:218::9 /);
        assert.match(await scene.inside('one', 'ip', '-o', 'link', 'show', 'eth0'), / mtu 1380 /);
        // The mtu is for the default bridge alone.
        await engineOk(scene.engine, ['network', 'create', '-o', 'com.docker.network.bridge.name=engfuser', 'user']);
        assert.match(ip('-o', 'link', 'show', 'engfuser'), / mtu 1500 /);
        assert.doesNotMatch(ip('-o', 'addr', 'show', 'engfuser'), /inet6/);
        await engineOk(scene.engine, ['network', 'rm', 'user']);
      },
    ),
  ));

test('icc and userland-proxy, switched off', (context) =>
  daemons.with(['--icc=false', '--userland-proxy=false'], async (scene) => {
    await context.test('containers of the default bridge do not reach each other, the host reaches them', async () => {
      for (const name of ['one', 'two']) await scene.run(name);
      const own = await scene.inside('two', 'ip', '-o', '-4', 'addr', 'show', 'eth0');
      const address = /inet (\S+)\//.exec(own)?.[1] ?? '';
      assert.match(ip('-d', 'link', 'show', 'master', scene.bridge), /isolated on/);
      assert.ok(rules('iptables').includes(`-i ${scene.bridge} -o ${scene.bridge} -j DROP`));
      assert.notEqual((await attempt(scene.engine, ['exec', 'one', 'ping', '-c', '1', '-W', '1', address])).status, 0);
      assert.match(
        execFileSync('busybox', ['ping', '-c', '2', '-W', '2', address], { encoding: 'utf8' }),
        /[12] packets received/,
      );
    });
    await context.test('loopback addresses are routed to the bridge', async () => {
      assert.equal(readFileSync(`/proc/sys/net/ipv4/conf/${scene.bridge}/route_localnet`, 'utf8').trim(), '1');
      await scene.run('published', '-p', '8082:80');
      assert.ok(rules('iptables').includes(`-p tcp -m tcp --dport 8082 -j DNAT`));
      assert.match(ip('-d', 'link', 'show', 'master', scene.bridge), /hairpin on/);
    });
  }));

test('firewall-backend: nftables writes a table of our own', async () => {
  const tables = (): string => execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' });
  const [four, six] = [rules('iptables'), rules('ip6tables')];
  await withSwitch(IPV6_FORWARD, '1', () =>
    daemons.with(['--firewall-backend=nftables', '--ipv6'], async (scene) => {
      await scene.run('one', '-p', '8081:80');
      assert.deepEqual([rules('iptables'), rules('ip6tables')], [four, six]);
      assert.equal(tables().split(`engine-bridges-${scene.bridge}\n`).length - 1, 2);
    }),
  );
  assert.ok(!tables().includes('engine-bridges'));
  await withSwitch(IPV4_FORWARD, '0', () =>
    assert.rejects(
      daemons.with(['--firewall-backend=nftables'], () => Promise.resolve()),
      /net\.ipv4\.ip_forward=1/,
    ),
  );
});

test('iptables and ip6tables: switched off, no rule is touched; ports are served by the proxy', async () => {
  const [four, six] = [rules('iptables'), rules('ip6tables')];
  await withSwitch(IPV6_FORWARD, '1', async () => {
    await daemons.with(['--iptables=false', '--ipv6'], async (scene) => {
      await scene.run('one', '-p', '8081:80');
      assert.deepEqual([rules('iptables'), rules('ip6tables')], [four, six]);
      assert.match(execFileSync('ss', ['-Hltn', 'sport', '=', ':8081'], { encoding: 'utf8' }), /0\.0\.0\.0:8081/);
    });
    await daemons.with(['--ip6tables=false', '--ipv6'], async (scene) => {
      await scene.run('one', '-p', '8081:80');
      assert.ok(rules('iptables').includes(scene.bridge));
      assert.equal(rules('ip6tables'), six);
    });
  });
});

test('bridge: one that is there is used as it is and stays; ip-forward=false: so does forwarding', async () => {
  const name = `engx${randomBytes(3).toString('hex')}`;
  ip('link', 'add', name, 'type', 'bridge');
  try {
    ip('addr', 'add', '10.218.20.1/24', 'dev', name);
    ip('link', 'set', name, 'up');
    await withForwarding('0', () =>
      daemons.with(['--bridge', name, '--ip-forward=false'], async (scene) => {
        assert.deepEqual(forwarding(), [false, 'ACCEPT']);
        await scene.run('one');
        assert.match(await scene.inside('one', 'ip', '-o', '-4', 'addr', 'show', 'eth0'), /10\.218\.20\.\d+\/24/);
        assert.match(ip('-o', 'link', 'show', 'master', name), /veth/);
      }),
    );
    assert.match(ip('-o', 'addr', 'show', name), /10\.218\.20\.1\/24/);
  } finally {
    ip('link', 'del', name);
  }
});

test('bridge: with none there is no default network', async () => {
  const before = links();
  await daemons.with(['--bridge', 'none'], async (scene) => {
    assert.deepEqual(links(), before);
    const networks = await callJson<readonly { readonly Name: string }[]>(scene.engine.socketPath, 'GET', '/networks');
    assert.ok(networks.length > 0 && networks.every(({ Name }) => !Name.includes('bridge')));
    const gateway = await attempt(scene.engine, ['run', '-d', '--add-host', 'above:host-gateway', scene.image, 'true']);
    assert.match(
      gateway.stderr,
      /failed to set up container networking: unable to derive the IP value for host-gateway/,
    );
    // The known engine does the same: a container has only loopback then, and user networks exist.
    await scene.run('alone');
    assert.doesNotMatch(await scene.inside('alone', 'ip', '-o', 'link'), /eth0/);
    await engineOk(scene.engine, ['network', 'create', 'user']);
    await scene.run('one', '--network', 'user');
    assert.match(await scene.inside('one', 'ip', '-o', 'link'), /eth0/);
    await engineOk(scene.engine, ['rm', '-f', 'one']);
    await engineOk(scene.engine, ['network', 'rm', 'user']);
  });
});

test('default-address-pool and default-network-opt: what new networks get; ip-forward-no-drop', () =>
  withForwarding('0', () =>
    daemons.with(
      [
        '--ip-forward-no-drop',
        '--bip',
        '10.218.40.1/24',
        '--default-address-pool',
        'base=10.219.0.0/23,size=24',
        '--default-network-opt',
        'bridge=com.engine.network.driver.mtu=1234',
        '--default-network-opt',
        'bridge=com.docker.network.bridge.enable_icc=false',
      ],
      async (scene) => {
        assert.deepEqual(forwarding(), [true, 'ACCEPT']);
        for (const name of ['first', 'second'])
          await engineOk(scene.engine, ['network', 'create', '-o', `com.docker.network.bridge.name=engf${name}`, name]);
        assert.match(ip('-o', 'addr', 'show', 'engffirst'), /inet 10\.219\.0\.1\/24 /);
        assert.match(ip('-o', 'addr', 'show', 'engfsecond'), /inet 10\.219\.1\.1\/24 /);
        assert.match(ip('-o', 'link', 'show', 'engffirst'), / mtu 1234 /);
        assert.ok(rules('iptables').includes('-i engffirst -o engffirst -j DROP'));
        assert.match(
          (await attempt(scene.engine, ['network', 'create', 'third'])).stderr,
          /all predefined address pools have been fully subnetted/,
        );
        // A network's own option wins, under either name.
        await engineOk(scene.engine, ['network', 'rm', 'second']);
        const options = ['-o', 'com.docker.network.bridge.name=engfown', '-o', 'com.docker.network.driver.mtu=1300'];
        await engineOk(scene.engine, ['network', 'create', ...options, 'own']);
        assert.match(ip('-o', 'link', 'show', 'engfown'), / mtu 1300 /);
        assert.match(ip('-o', 'link', 'show', scene.bridge), / mtu 1500 /);
        await engineOk(scene.engine, ['network', 'rm', 'first', 'own']);
      },
    ),
  ));

test('default-address-pool of IPv6 alone, on a machine that does not forward yet', () =>
  withForwarding('0', () =>
    daemons.with(['--ipv6', '--default-address-pool', 'base=fd00:219::/63,size=64'], async (scene) => {
      assert.deepEqual(forwarding(), [true, 'DROP']);
      // The policy outlives the daemon, and would count as left behind.
      accept();
      // It is for IPv6, and IPv4 has the pools that are built in.
      const addresses = (link: string): string => ip('-o', 'addr', 'show', link);
      assert.match(addresses(scene.bridge), /inet6 fd00:219::1\/64 /);
      assert.match(addresses(scene.bridge), /inet (?:172|192)\./);
      const create = (name: string): string[] => [
        'network',
        'create',
        '--ipv6',
        '-o',
        `com.docker.network.bridge.name=${name}`,
        name,
      ];
      await engineOk(scene.engine, create('engfsix'));
      assert.match(addresses('engfsix'), /inet6 fd00:219:0:1::1\/64 /);
      assert.match(addresses('engfsix'), /inet (?:172|192)\./);
      assert.match(
        (await attempt(scene.engine, create('engfmore'))).stderr,
        /all predefined address pools have been fully subnetted/,
      );
      await engineOk(scene.engine, ['network', 'rm', 'engfsix']);
    }),
  ));

/** Ports of the default bridge are on the address of `--ip`, those of other networks where these say. */
async function publishOnLoopback(scene: Scene): Promise<void> {
  await scene.run('one', '-p', '8083:80');
  assert.equal(await engineOk(scene.engine, ['port', 'one']), '80/tcp -> 127.0.0.1:8083');
  assert.doesNotMatch(execFileSync('ss', ['-Hltn', 'sport', '=', ':8083'], { encoding: 'utf8' }), /0\.0\.0\.0:8083/);
  await engineOk(scene.engine, ['network', 'create', 'user']);
  await engineOk(scene.engine, [
    'network',
    'create',
    '-o',
    'com.engine.network.bridge.host_binding_ipv4=127.0.0.2',
    'bound',
  ]);
  await scene.run('two', '--network', 'user', '-p', '8084:80');
  assert.match(await engineOk(scene.engine, ['port', 'two']), /0\.0\.0\.0:8084/);
  await scene.run('three', '--network', 'bound', '-p', '8085:80');
  assert.equal(await engineOk(scene.engine, ['port', 'three']), '80/tcp -> 127.0.0.2:8085');
  await engineOk(scene.engine, ['rm', '-f', 'two', 'three']);
  await engineOk(scene.engine, ['network', 'rm', 'user', 'bound']);
}

/** A server of our own hears what containers of both kinds of network ask for. */
async function askNames(scene: Scene): Promise<void> {
  const asked: string[] = [];
  const server = createSocket('udp4', (query, peer) => {
    asked.push(nameIn(query));
    // No such name.
    const answer = Buffer.from(query);
    answer.writeUInt16BE(0x8183, 2);
    server.send(answer, peer.port, peer.address);
  });
  server.bind(53, '10.218.50.1');
  await once(server, 'listening');
  try {
    await engineOk(scene.engine, ['network', 'create', 'user']);
    await scene.run('plain');
    await scene.run('named', '--network', 'user');
    assert.equal(
      await scene.inside('plain', 'cat', '/etc/resolv.conf'),
      'nameserver 10.218.50.1\nsearch first.example second.example\noptions ndots:3 timeout:1',
    );
    for (const name of ['plain', 'named']) {
      asked.length = 0;
      await attempt(scene.engine, ['exec', name, 'ping', '-c', '1', '-W', '1', 'wanted.in']);
      assert.deepEqual(
        [...new Set(asked)].filter((each) => each.startsWith('wanted.')).toSorted(),
        ['wanted.in', 'wanted.in.first.example', 'wanted.in.second.example'],
        name,
      );
    }
    await engineOk(scene.engine, ['rm', '-f', 'plain', 'named']);
    await engineOk(scene.engine, ['network', 'rm', 'user']);
  } finally {
    server.close();
  }
}

/** They are each about something else, so one daemon has them all. */
const APART = (
  '--ip-masq=false --ip 127.0.0.1 --network-control-plane-mtu 1400 --userland-proxy-path /bin/false ' +
  '--bip 10.218.50.1/24 --dns 10.218.50.1 --dns-opt ndots:3 --dns-opt timeout:1 ' +
  '--dns-search first.example --dns-search second.example ' +
  '--host-gateway-ip 10.218.52.1 --host-gateway-ip fd00:218:52::1'
).split(' ');

test('flags that have nothing to do with one another', (context) =>
  withForwarding('1', () =>
    daemons.with(APART, async (scene) => {
      context.afterEach(() => removeContainers(scene.engine));

      await context.test('a machine that forwards already keeps its policy', () =>
        assert.deepEqual(forwarding(), [true, 'ACCEPT']),
      );

      await context.test('ip-masq: without it containers leave with their own address', () =>
        assert.equal(isMasqueraded(scene.bridge), false),
      );

      await context.test('ip: where ports of the default bridge are published that name no address', () =>
        publishOnLoopback(scene),
      );

      await context.test('dns, dns-search, dns-opt: who is asked, and for what', () => askNames(scene));

      await context.test('host-gateway-ip: what host-gateway stands for, if it is said', async () => {
        ip('addr', 'add', '10.218.52.1/32', 'dev', 'lo');
        try {
          await scene.run('one', '--add-host', 'above:host-gateway');
          assert.deepEqual((await scene.inside('one', 'grep', 'above', '/etc/hosts')).split('\n'), [
            '10.218.52.1\tabove',
            'fd00:218:52::1\tabove',
          ]);
          assert.match(
            await scene.inside('one', 'ping', '-4', '-c', '1', '-W', '2', 'above'),
            /10\.218\.52\.1.*\n[\s\S]*1 packets received/,
          );
        } finally {
          ip('addr', 'del', '10.218.52.1/32', 'dev', 'lo');
        }
      });

      await context.test(
        'network-control-plane-mtu and userland-proxy-path change neither links nor ports',
        async () => {
          assert.match(ip('-o', 'link', 'show', scene.bridge), / mtu 1500 /);
          await scene.run('one', '-p', '127.0.0.1:8086:80');
          assert.match(
            execFileSync('ss', ['-Hltnp', 'sport', '=', ':8086'], { encoding: 'utf8' }),
            new RegExp(`127\\.0\\.0\\.1:8086 .*pid=${scene.engine.pid}\\b`),
          );
        },
      );
    }),
  ));

test('values that cannot be are refused at the start with the name of the flag', async () => {
  const bad: readonly (readonly [args: readonly string[], message: RegExp])[] = [
    [['--bip', '10.218.0.0/16'], /invalid bip: 10\.218\.0\.0\/16 is the network's own address/],
    [['--bip', '10.218.0.1/16', '--fixed-cidr', '10.99.0.0/24'], /fixed-cidr 10\.99\.0\.0\/24 is not inside/],
    [['--bip', '10.218.0.1/16', '--default-gateway', '10.99.0.1'], /default-gateway 10\.99\.0\.1 is not inside/],
    [['--network-control-plane-mtu', '499'], /network control plane MTU: 499/],
    [['--default-address-pool', 'base=10.219.0.0/24,size=16'], /invalid size 16 of address pool/],
    [['--ip', 'nonsense'], /invalid argument "nonsense" for "--ip"/],
  ];
  for (const [args, message] of bad)
    assert.match(
      refused(() => load({}, args)),
      message,
    );
  // Each is refused as it is read; that the daemon then ends with these words is the same for all.
  const [[args, message] = assert.fail()] = bad;
  await assert.rejects(
    Engine.start(engined({ args })).then((engine) => engine.discard()),
    message,
  );
});

test('no flag is left out', () => {
  assert.deepEqual(daemons.untried, []);
});
