import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AddressPool } from './address-pool.js';
import { hostsFile, resolvConfFile } from './files.js';
import { baseRules, portRules, restoreScript } from './firewall.js';
import { parseResolvConf } from './host-dns.js';
import { formatSubnet, overlaps, parseSubnet } from './subnet.js';

test('subnets', () => {
  assert.equal(formatSubnet(parseSubnet('172.17.3.4/16', 'bip')), '172.17.0.0/16');
  for (const bad of ['172.17.0.0', '172.17.0.0/33', '172.17.0/16', 'fe80::/64', '']) assert.throws(() => parseSubnet(bad, 'bip'), /invalid bip/, bad);
  assert.equal(overlaps(parseSubnet('10.0.0.0/8', 'a'), parseSubnet('10.200.0.0/16', 'b')), true);
  assert.equal(overlaps(parseSubnet('10.0.0.0/16', 'a'), parseSubnet('10.1.0.0/16', 'b')), false);
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
  assert.throws(() => pool.reserve('10.0.1.3'), /not in the subnet/);
  const ranged = new AddressPool(parseSubnet('10.0.0.0/16', 'x'), parseSubnet('10.0.5.0/24', 'y'));
  assert.equal(ranged.allocate(), '10.0.5.0');
});

test('rules of a bridge and of a port in one script', () => {
  const rules = { bridge: 'eng1', subnet: '10.1.0.0/16', masquerade: true, interContainer: false };
  const script = restoreScript({ declare: [{ table: 'filter', chain: 'X' }], append: [...baseRules(rules), ...portRules('eng1', '10.1.0.2', { protocol: 'tcp', containerPort: 80, hostIp: '127.0.0.1', hostPort: 8080 })] });
  assert.match(script, /^\*filter\n:X - \[0:0\]\n/);
  assert.match(script, /-A ENGINE-FWD-eng1 -i eng1 -o eng1 -j DROP/);
  assert.match(script, /-A ENGINE-DNAT-eng1 -p tcp -d 127.0.0.1\/32 --dport 8080 -j DNAT --to-destination 10.1.0.2:80/);
  assert.equal(script.match(/COMMIT/g)?.length, 2);
});

test('files of a container', () => {
  const hosts = hostsFile({ hostname: 'web', domainname: 'example.org', addresses: ['10.1.0.2'], extraHosts: ['db:10.9.9.9', 'host:host-gateway', 'six:[::1]'], hostGatewayIps: ['10.1.0.1'] });
  assert.match(hosts, /^127\.0\.0\.1\tlocalhost\n/);
  assert.match(hosts, /10\.9\.9\.9\tdb\n10\.1\.0\.1\thost\n::1\tsix\n10\.1\.0\.2\tweb\.example\.org web\n$/);
  assert.equal(resolvConfFile({ nameservers: ['1.1.1.1'], search: ['.'], options: ['ndots:0'] }), 'nameserver 1.1.1.1\noptions ndots:0\n');
  assert.deepEqual(parseResolvConf('# x\nnameserver 9.9.9.9 # y\nsearch a b\noptions edns0\n'), { nameservers: ['9.9.9.9'], search: ['a', 'b'], options: ['edns0'] });
});
