import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Ruleset } from './firewall-rules.js';
import { whole } from '../text/turns.js';
import { bridgeNameProblem } from './bridge-name.js';
import { type NftChain, nftChains, RuleComments, tableName } from './nftables-rules.js';
import { identity, parseTable, tableScript, type NftTable } from './nftables-script.js';

const chainsOf = (...input: Parameters<typeof nftChains>): NftChain[] => whole(nftChains(...input));
const modes = { 4: 'nat', 6: 'nat' } as const;
const bridge = { masquerade: true, sources: {}, interContainer: false, internal: false, modes };
const ruleset: Ruleset = {
  tag: 'e1',
  userlandProxy: true,
  directRouting: false,
  bridged: [],
  bridges: [
    { ...bridge, bridge: 'e1', subnets: { 4: '10.1.0.0/16', 6: 'fd00::/64' } },
    { ...bridge, bridge: 'in', subnets: { 4: '10.2.0.0/16' }, internal: true },
  ],
  links: [],
  ports: [
    { bridge: 'e1', protocol: 'udp', containerIp: '10.1.0.2', containerPort: 53, hostIp: '0.0.0.0', hostPort: 5300 },
    { bridge: 'e1', protocol: 'tcp', containerIp: 'fd00::2', containerPort: 80, hostIp: '2001:db8::1', hostPort: 81 },
  ],
};

const WITHOUT_COMMENT = / comment "engine-[0-9a-f]{24}"$/;
/** Rules of a chain without their comments, which all of them must have. */
function plain(family: 4 | 6, name: string, changes: Partial<Ruleset> = {}): readonly string[] | undefined {
  return chainsOf({ ...ruleset, ...changes }, family)
    .find((chain) => chain.name === name)
    ?.rules.map((rule) => {
      assert.match(rule, WITHOUT_COMMENT);
      return rule.replace(WITHOUT_COMMENT, '');
    });
}

/** A table as nft lists it: in other words than those it was given, but with the comments. */
function listed(): string {
  const chains = chainsOf(ruleset, 4).map(({ name, hook, rules }) => {
    const heading = hook === undefined ? '' : `\t\t${hook}; policy accept;\n`;
    const lines = rules.map((rule) => `\t\t${rule.replace('{ established, related }', '0x2,0x4')}\n`);
    return `\tchain ${name} {\n${heading}${lines.join('')}\t}\n`;
  });
  return `table ip engine-bridges-e1 {\n${chains.join('\n')}}\n`;
}

const script = (current: NftTable, wanted: Ruleset = ruleset): string =>
  whole(tableScript('engine-bridges-e1', 4, current, chainsOf(wanted, 4)));

test('rules of bridges and ports in the words of nft', () => {
  assert.deepEqual(plain(4, 'forward'), [
    'iifname "in" oifname != "in" drop',
    'oifname "e1" ct state { established, related } accept',
    'iifname "e1" oifname "e1" drop',
    'oifname "e1" ct status dnat accept',
    'oifname "e1" drop',
    'iifname "in" oifname "in" drop',
    'oifname "in" drop',
    'iifname "e1" oifname != "e1" accept',
  ]);
  assert.deepEqual(plain(4, 'ports'), ['iifname != "e1" udp dport 5300 dnat to 10.1.0.2:53']);
  assert.deepEqual(plain(6, 'ports'), ['ip6 daddr 2001:db8::1/128 iifname != "e1" tcp dport 81 dnat to [fd00::2]:80']);
  assert.deepEqual(plain(4, 'postrouting'), [
    'ip saddr 10.1.0.0/16 oifname != "e1" masquerade',
    'ip saddr 10.1.0.0/16 oifname "e1" ct status dnat masquerade',
  ]);
  assert.deepEqual(plain(4, 'output'), ['ip daddr != 127.0.0.0/8 fib daddr type local jump ports']);
  assert.equal(plain(4, 'input'), undefined);
  assert.deepEqual(
    plain(4, 'input', { userlandProxy: false })?.[0],
    'ip daddr 127.0.0.0/8 iifname "e1" ct state != { established, related } drop',
  );
});

test('comments that are kept from one change to the next are those that would be made anew', () => {
  const comments = new RuleComments();
  for (const ports of [ruleset.ports, [], ruleset.ports, ruleset.ports.map((port) => ({ ...port, hostPort: 9 }))])
    assert.deepEqual(chainsOf({ ...ruleset, ports }, 4, comments), chainsOf({ ...ruleset, ports }, 4));
});

test('the rules of thousands of ports are made in parts', () => {
  const ports = Array.from({ length: 4000 }, (_, at) => ({
    bridge: 'e1',
    protocol: 'tcp' as const,
    containerIp: '10.1.0.2',
    hostIp: '0.0.0.0',
    containerPort: at,
    hostPort: at,
  }));
  const work = nftChains({ ...ruleset, ports }, 4);
  let pauses = 0;
  while (work.next().done !== true) pauses++;
  assert.ok(pauses >= 60, `${pauses}`);
});

test('names of bridges that would mean something else in rules and paths, and names of tables', () => {
  for (const name of [
    'a"b',
    'br*',
    'br+',
    'a;b',
    'a{',
    'a\\',
    'a\nb',
    'a b',
    'a/b',
    'ä',
    '!a',
    '.',
    '..',
    '',
    'a'.repeat(16),
  ])
    assert.match(bridgeNameProblem(name) ?? '', /^invalid bridge name/, name);
  for (const name of ['engine0', 'br-0123456789ab', 'a+b', 'a@b', 'a_b', 'a.b', '-a', '123'])
    assert.equal(bridgeNameProblem(name), undefined, name);
  assert.equal(tableName('a.b-c'), 'engine-bridges-a.b-c');
  assert.equal(tableName('a_b@c+d'), 'engine-bridges-a_5fb_40c_2bd');
});

test('a table is changed where it differs, and a chain as a whole', () => {
  const current = whole(parseTable(listed()));
  assert.equal(script(current), '', 'other words, same rules');
  assert.deepEqual([...current.keys()], ['ports', 'forward', 'prerouting', 'output', 'postrouting']);
  const closed = script(current, { ...ruleset, ports: [] });
  assert.deepEqual(
    closed.split('\n').filter((line) => !line.startsWith('add chain ')),
    ['add table ip engine-bridges-e1', 'flush chain ip engine-bridges-e1 ports', ''],
  );
  // A foreign rule, one that is gone, and a chain that is wanted no more.
  const [port = ''] = current.get('ports') ?? [];
  assert.match(script(new Map([...current, ['ports', [port, 'tcp dport 1 drop']]])), /^flush chain .* ports$/m);
  // New rules are added alone when they come after those that are there.
  const opened = script(new Map([...current, ['ports', []]]));
  assert.match(opened, /^add rule ip engine-bridges-e1 ports .* dnat to /m);
  assert.doesNotMatch(opened, /flush/);
  assert.match(script(new Map([...current, ['input', []]])), /^delete chain ip engine-bridges-e1 input$/m);
  assert.equal(script(new Map([...current, ['others', ['accept']]])), '', 'chains of others stay');
  assert.equal(identity('tcp dport 1 drop'), 'tcp dport 1 drop');
  const lines = script(new Map()).split('\n');
  assert.equal(lines[0], 'add table ip engine-bridges-e1');
  assert.ok(
    lines.findIndex((line) => line.includes('jump ports')) >
      lines.findLastIndex((line) => line.startsWith('add chain ')),
  );
});
