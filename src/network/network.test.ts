import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Parts, whole } from '../text/turns.js';
import { AddressPool } from './address-pool.js';
import { behindResolver, hostsFile, resolvConfFile } from './files.js';
import type { Ruleset } from './firewall-rules.js';
import { parseTables, removalScript, restoreScript, type Tables } from './firewall-script.js';
import { chooseSubnet, localSubnet } from './free-subnet.js';
import { parseResolvConf } from './host-dns.js';
import { type Chain, chainsOf, chainsOfTag, jumpsOf } from './iptables-rules.js';
import { contains, covers, formatSubnet, overlaps, parseSubnet, toAddress, toNumber } from './subnet.js';

const chainsFor = (...input: Parameters<typeof chainsOf>): Chain[] => whole(chainsOf(...input));
const parsed = (saved: string): Tables => whole(parseTables(saved));
const restored = (...input: Parameters<typeof restoreScript>): string => whole(restoreScript(...input));
const ID = '0123456789abcdef';

test('subnets of both families', () => {
  assert.equal(formatSubnet(parseSubnet('172.17.3.4/16', 'bip')), '172.17.0.0/16');
  assert.equal(formatSubnet(parseSubnet('fd00:0:0:1::7/64', 'bip6', 6)), 'fd00:0:0:1::/64');
  assert.equal(formatSubnet(parseSubnet('0.0.0.0/0', 'x')), '0.0.0.0/0');
  for (const bad of ['172.17.0.0', '172.17.0.0/33', '172.17.0/16', 'fe80::/64', '', '10.0.0.0/8/8', '10.0.0.0/'])
    assert.throws(() => parseSubnet(bad, 'bip', 4), /invalid bip/, bad);
  for (const bad of ['fd00::/129', '10.0.0.0/8', 'fd00::'])
    assert.throws(() => parseSubnet(bad, 'bip6', 6), /invalid bip6/, bad);
  assert.equal(overlaps(parseSubnet('10.0.0.0/8', 'a'), parseSubnet('10.200.0.0/16', 'b')), true);
  assert.equal(overlaps(parseSubnet('10.0.0.0/16', 'a'), parseSubnet('10.1.0.0/16', 'b')), false);
  assert.equal(overlaps(parseSubnet('::/0', 'a'), parseSubnet('10.1.0.0/16', 'b')), false);
  assert.equal(covers(parseSubnet('10.0.0.0/16', 'a'), parseSubnet('10.0.1.0/24', 'b')), true);
  assert.equal(contains(parseSubnet('fd00::/64', 'a'), 'fd00::1:2'), true);
  for (const address of ['::', '::1', 'fd00::1:0:0:2', '1:2:3:4:5:6:7:8', 'fe80::ffff', '255.255.255.255', '0.0.0.1'])
    assert.equal(toAddress(address.includes(':') ? 6 : 4, toNumber(address)), address);
  assert.equal(toAddress(6, toNumber('::ffff:1.2.3.4')), '::ffff:102:304');
});

test('addresses are given out in turn, not again at once, and never twice', () => {
  const pool = new AddressPool(parseSubnet('10.0.0.0/29', 'x'));
  pool.reserve('10.0.0.1');
  assert.equal(pool.allocate(), '10.0.0.2');
  pool.release('10.0.0.2');
  const rest = Array.from({ length: 5 }, () => pool.allocate());
  assert.deepEqual(rest, ['10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6', '10.0.0.2']);
  assert.throws(() => pool.allocate(), /no available IPv4 addresses/);
  assert.throws(() => pool.reserve('10.0.0.3'), /Address already in use/);
  assert.throws(() => pool.reserve('10.0.1.3'), /no configured subnet or ip-range contain the IP address 10\.0\.1\.3/);
  const ranged = new AddressPool(parseSubnet('10.0.0.0/16', 'x'), parseSubnet('10.0.5.0/24', 'y'));
  assert.equal(ranged.allocate(), '10.0.5.0');
  const six = new AddressPool(parseSubnet('fd00::/64', 'x'));
  assert.deepEqual([six.allocate(), six.allocate()], ['fd00::1', 'fd00::2']);
});

test('a container that comes back gets the address that it had, unless another one has it', () => {
  const pool = new AddressPool(parseSubnet('10.0.0.0/29', 'x'));
  const [one, two] = [pool.allocate('a'), pool.allocate('b')];
  pool.release(one);
  assert.equal(pool.allocate('c'), '10.0.0.3');
  assert.equal(pool.allocate('a'), one);
  pool.release(two);
  pool.reserve(two, 'd');
  assert.equal(pool.allocate('b'), '10.0.0.4');
  pool.release('10.0.0.4');
  assert.equal(pool.allocate('b'), '10.0.0.4');
});

test('a free subnet is the first block that nothing touches', () => {
  const taken = ['172.17.5.0/24', '172.18.0.0/15'].map((text) => parseSubnet(text, 'x'));
  assert.equal(formatSubnet(chooseSubnet(4, [], taken, ID)), '172.20.0.0/16');
  assert.equal(
    formatSubnet(chooseSubnet(4, [{ base: '10.10.0.0/16', size: 24 }], [parseSubnet('10.10.0.0/24', 'x')], ID)),
    '10.10.1.0/24',
  );
  assert.throws(
    () => chooseSubnet(4, [{ base: '10.10.0.0/24', size: 24 }], [parseSubnet('10.0.0.0/8', 'x')], ID),
    /fully subnetted/,
  );
  assert.equal(formatSubnet(localSubnet('0123456789abcdef')), 'fd01:2345:6789::/64');
  // Pools of one family say nothing about the other.
  const pools = [{ base: 'fd00:7::/32', size: 64 }];
  assert.equal(formatSubnet(chooseSubnet(4, pools, taken, ID)), '172.20.0.0/16');
  assert.equal(formatSubnet(chooseSubnet(6, [], [], ID)), 'fd01:2345:6789::/64');
  assert.equal(formatSubnet(chooseSubnet(6, pools, [], ID)), 'fd00:7::/64');
  assert.equal(
    formatSubnet(chooseSubnet(6, pools, [parseSubnet('fd00:7::/33', 'x'), parseSubnet('fd00:7:8000::/80', 'x')], ID)),
    'fd00:7:8000:1::/64',
  );
  assert.throws(() => chooseSubnet(6, pools, [parseSubnet('fd00::/8', 'x')], ID), /fully subnetted/);
});

const ruleset: Ruleset = {
  tag: 'e1',
  userlandProxy: true,
  directRouting: false,
  bridged: [],
  bridges: [
    {
      bridge: 'e1',
      subnets: { 4: '10.1.0.0/16' },
      masquerade: true,
      sources: {},
      interContainer: false,
      internal: false,
      modes: { 4: 'nat', 6: 'nat' },
    },
    {
      bridge: 'in',
      subnets: { 4: '10.2.0.0/16', 6: 'fd00::/64' },
      masquerade: true,
      sources: {},
      interContainer: true,
      internal: true,
      modes: { 4: 'nat', 6: 'nat' },
    },
  ],
  links: [],
  ports: [
    { bridge: 'e1', protocol: 'tcp', containerIp: '10.1.0.2', containerPort: 80, hostIp: '127.0.0.1', hostPort: 8080 },
    { bridge: 'e1', protocol: 'udp', containerIp: '10.1.0.2', containerPort: 53, hostIp: '0.0.0.0', hostPort: 5300 },
    { bridge: 'e1', protocol: 'tcp', containerIp: '10.1.0.2', containerPort: 81, hostIp: '192.0.2.1', hostPort: 8081 },
  ],
};

test('with direct routing, published ports are open at the addresses of containers, too', () => {
  const rules = chainsFor({ ...ruleset, directRouting: true }, 4)[0]?.rules ?? [];
  const at = rules.indexOf('-o e1 -m conntrack --ctstate DNAT -j ACCEPT');
  assert.deepEqual(rules.slice(at + 1, at + 5), [
    '-d 10.1.0.2/32 -o e1 -p tcp -m tcp --dport 80 -j ACCEPT',
    '-d 10.1.0.2/32 -o e1 -p udp -m udp --dport 53 -j ACCEPT',
    '-d 10.1.0.2/32 -o e1 -p tcp -m tcp --dport 81 -j ACCEPT',
    '-o e1 -j DROP',
  ]);
});

test('rules of bridges and ports', () => {
  const [into, out, dnat, snat] = chainsFor(ruleset, 4);
  assert.deepEqual(into?.rules, [
    '-i in ! -o in -j DROP',
    '-o e1 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    '-i e1 -o e1 -j DROP',
    '-o e1 -m conntrack --ctstate DNAT -j ACCEPT',
    '-o e1 -j DROP',
    '-i in -o in -j ACCEPT',
    '-o in -j DROP',
  ]);
  assert.deepEqual(out?.rules, ['-i e1 ! -o e1 -j ACCEPT']);
  assert.deepEqual(dnat?.rules, [
    '! -i e1 -p udp -m udp --dport 5300 -j DNAT --to-destination 10.1.0.2:53',
    '-d 192.0.2.1/32 ! -i e1 -p tcp -m tcp --dport 8081 -j DNAT --to-destination 10.1.0.2:81',
  ]);
  assert.deepEqual(snat?.rules, [
    '-s 10.1.0.0/16 ! -o e1 -j MASQUERADE',
    '-s 10.1.0.0/16 -o e1 -m conntrack --ctstate DNAT -j MASQUERADE',
  ]);
  const unproxied = chainsFor({ ...ruleset, userlandProxy: false }, 4);
  assert.deepEqual(unproxied.find(({ name }) => name.startsWith('ENGINE-HOST'))?.rules, [
    '-d 127.0.0.0/8 -i e1 -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP',
    '-d 127.0.0.0/8 -i in -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP',
  ]);
  assert.equal(
    unproxied.find(({ name }) => name.startsWith('ENGINE-DNAT'))?.rules[0],
    '-d 127.0.0.1/32 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.1.0.2:80',
  );
  const masks = (bridged: readonly (4 | 6)[], interContainer: boolean): readonly string[] | undefined =>
    chainsFor(
      {
        ...ruleset,
        userlandProxy: false,
        bridged,
        bridges: ruleset.bridges.map((bridge) => ({ ...bridge, interContainer })),
      },
      4,
    )
      .find(({ name }) => name.startsWith('ENGINE-SNAT'))
      ?.rules.filter((rule) => rule.endsWith('MASQUERADE') && !rule.includes('! -o') && !rule.includes('LOCAL'));
  assert.deepEqual(
    masks([4], true),
    ['80 tcp', '53 udp', '81 tcp']
      .map((each) => each.split(' '))
      .map(
        ([port, protocol]) =>
          `-s 10.1.0.2/32 -d 10.1.0.2/32 -p ${protocol} -m ${protocol} --dport ${port} -j MASQUERADE`,
      ),
  );
  for (const [bridged, interContainer] of [
    [[], true],
    [[4], false],
  ] as const)
    assert.deepEqual(masks(bridged, interContainer), [
      '-s 10.1.0.0/16 -o e1 -m conntrack --ctstate DNAT -j MASQUERADE',
    ]);
  assert.deepEqual(chainsFor(ruleset, 6)[0]?.rules, [
    '-i in ! -o in -j DROP',
    '-i in -o in -j ACCEPT',
    '-o in -j DROP',
  ]);
});

test('the rules of thousands of ports are made, compared and parsed in parts', () => {
  const ports = Array.from({ length: 4000 }, (_, at) => ({
    bridge: 'e1',
    protocol: 'tcp' as const,
    containerIp: '10.1.0.2',
    hostIp: '0.0.0.0',
    containerPort: at,
    hostPort: at,
  }));
  /** A part is done between two of these. */
  const pauses = (work: Parts<unknown>): number => {
    let count = 0;
    while (work.next().done !== true) count++;
    return count;
  };
  assert.ok(pauses(chainsOf({ ...ruleset, ports }, 4)) >= 40);
  const chains = chainsFor({ ...ruleset, ports }, 4);
  const first = restored(new Map(), chains, []);
  assert.ok(pauses(restoreScript(new Map(), chains, [])) >= 20);
  assert.ok(pauses(parseTables(first)) >= 8);
});

test('the way from the kernel to what is wanted', () => {
  const chains = chainsFor(ruleset, 4);
  const jumps = jumpsOf(ruleset, 4);
  const first = restored(new Map(), chains, jumps);
  assert.match(first, /^\*filter\n-N ENGINE-USER\n:ENGINE-IN-e1 - \[0:0\]\n/);
  const wanted = '-I FORWARD 1 -j ENGINE-USER\n-I FORWARD 2 -j ENGINE-IN-e1\n-I FORWARD 3 -j ENGINE-OUT-e1\n';
  assert.ok(first.includes(`${wanted}COMMIT\n*nat\n`));
  // iptables-save would print these rules after the change.
  const saved = (tag: string, forward: readonly string[], extra: readonly string[] = []): string =>
    [
      '*filter',
      ':FORWARD DROP [0:0]',
      ':ENGINE-USER - [0:0]',
      ...chains.filter(({ table }) => table === 'filter').map(({ name }) => `:${name} - [0:0]`),
      ...forward.map((rule) => `-A FORWARD ${rule}`),
      ...chains
        .filter(({ table }) => table === 'filter')
        .flatMap(({ name, rules }) => rules.map((rule) => `-A ${name} ${rule}`)),
      'COMMIT',
      '*nat',
      ...chains.filter(({ table }) => table === 'nat').map(({ name }) => `:${name} - [0:0]`),
      ...jumps
        .filter(({ table }) => table === 'nat')
        .flatMap(({ chain, rules }) => [`:${chain} ACCEPT [0:0]`, ...rules.map((rule) => `-A ${chain} ${rule}`)]),
      ...chains
        .filter(({ table }) => table === 'nat')
        .flatMap(({ name, rules }) => rules.map((rule) => `-A ${name} ${rule}`)),
      ...extra,
      'COMMIT',
      '',
    ].join('\n');
  const ours = ['-j ENGINE-USER', '-j ENGINE-IN-e1', '-j ENGINE-OUT-e1'];
  assert.equal(restored(parsed(saved('e1', [...ours, '-j REJECT'])), chains, jumps), '');
  // Another daemon's jump for incoming packets stays before ours for outgoing ones, foreign rules after them.
  assert.match(
    restored(
      parsed(saved('e1', ['-j ENGINE-USER', '-j ENGINE-IN-e2', '-j ENGINE-OUT-e2', '-j REJECT'])),
      chains,
      jumps,
    ),
    /^\*filter\n-I FORWARD 2 -j ENGINE-IN-e1\n-I FORWARD 4 -j ENGINE-OUT-e1\nCOMMIT\n$/,
  );
  // One port more and one less: two lines; the other rules are not touched.
  const changed = chainsFor(
    {
      ...ruleset,
      ports: [
        ...ruleset.ports.slice(2),
        { bridge: 'e1', protocol: 'tcp', containerIp: '10.1.0.3', containerPort: 1, hostIp: '0.0.0.0', hostPort: 2 },
      ],
    },
    4,
  );
  assert.equal(
    restored(parsed(saved('e1', ours)), changed, jumps),
    '*nat\n-D ENGINE-DNAT-e1 ! -i e1 -p udp -m udp --dport 5300 -j DNAT --to-destination 10.1.0.2:53\n' +
      '-A ENGINE-DNAT-e1 ! -i e1 -p tcp -m tcp --dport 2 -j DNAT --to-destination 10.1.0.3:1\nCOMMIT\n',
  );
  // An earlier version has led more packets to our ports; an operator has led some to a chain of their own.
  const older = ['-A PREROUTING -m addrtype --dst-type LOCAL -j ENGINE-DNAT-e1', '-A PREROUTING -p tcp -j MINE'];
  assert.equal(
    restored(parsed(saved('e1', ours, older)), chains, jumps, chainsOfTag('e1')),
    '*nat\n-D PREROUTING -m addrtype --dst-type LOCAL -j ENGINE-DNAT-e1\nCOMMIT\n',
  );
  // A foreign rule in one of our chains: the chain is written anew, in the same step.
  assert.match(
    restored(parsed(saved('e1', ours, ['-A ENGINE-SNAT-e1 -j ACCEPT', '-A ENGINE-SNAT-e1 -j ACCEPT'])), chains, jumps),
    /^\*nat\n:ENGINE-SNAT-e1 - \[0:0\]\n-A ENGINE-SNAT-e1 /,
  );
});

test('what is ours goes, what operators and other daemons have stays', () => {
  const names = chainsOfTag('e1');
  const removal = (filter: string): string =>
    removalScript(
      parsed(
        '*filter\n:FORWARD ACCEPT [0:0]\n:ENGINE-USER - [0:0]\n:ENGINE-IN-e1 - [0:0]\n' +
          `-A FORWARD -j ENGINE-USER\n-A FORWARD -j ENGINE-IN-e1\n${filter}COMMIT\n`,
      ),
      names,
    );
  assert.equal(
    removal(''),
    '*filter\n-D FORWARD -j ENGINE-USER\n-D FORWARD -j ENGINE-IN-e1\n-F ENGINE-IN-e1\n-F ENGINE-USER\n' +
      '-X ENGINE-IN-e1\n-X ENGINE-USER\nCOMMIT\n',
  );
  const kept = '*filter\n-D FORWARD -j ENGINE-IN-e1\n-F ENGINE-IN-e1\n-X ENGINE-IN-e1\nCOMMIT\n';
  assert.equal(removal('-A ENGINE-USER -s 192.0.2.1 -j DROP\n'), kept);
  assert.equal(removal('-A FORWARD -j ENGINE-IN-e2\n'), kept);
  // Somebody's rule that leads to our chain would keep it; the users' chain stays for the sake of such a rule.
  assert.equal(
    removal('-A FORWARD -s 192.0.2.1/32 -j ENGINE-IN-e1\n-A FORWARD -s 192.0.2.2/32 -g ENGINE-USER\n'),
    kept.replace('-F', '-D FORWARD -s 192.0.2.1/32 -j ENGINE-IN-e1\n-F'),
  );
  assert.equal(removalScript(new Map(), names), '');
});

test('files of a container', () => {
  const hosts = hostsFile({
    hostname: 'web',
    domainname: 'example.org',
    addresses: ['10.1.0.2'],
    extraHosts: ['db:10.9.9.9', 'host:host-gateway', 'six:[::1]'],
    linked: [],
    hostGatewayIps: ['10.1.0.1'],
    hasIpv6: true,
  });
  assert.match(hosts, /\nfe00::\tip6-localnet\nff00::\tip6-mcastprefix\n/);
  assert.match(hosts, /^127\.0\.0\.1\tlocalhost\n/);
  assert.match(hosts, /10\.9\.9\.9\tdb\n10\.1\.0\.1\thost\n::1\tsix\n10\.1\.0\.2\tweb\.example\.org web\n$/);
  assert.equal(
    resolvConfFile({ nameservers: ['1.1.1.1'], search: ['.'], options: ['ndots:0'] }),
    'nameserver 1.1.1.1\noptions ndots:0\n',
  );
  assert.equal(
    resolvConfFile(behindResolver({ nameservers: ['1.1.1.1'], search: ['x.org'], options: ['edns0'] })),
    'nameserver 127.0.0.11\nsearch x.org\noptions edns0 ndots:0\n',
  );
  assert.deepEqual(parseResolvConf('# x\nnameserver 9.9.9.9 # y\nsearch a b\noptions edns0\n'), {
    nameservers: ['9.9.9.9'],
    search: ['a', 'b'],
    options: ['edns0'],
  });
});
