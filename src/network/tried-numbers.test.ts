import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../test/support/silent-log.js';
import { NO_KEPT_SOCKETS } from '../ports/kept-sockets.js';
import type { PortRequest } from '../ports/network.js';
import { EndpointPorts } from './endpoint-ports.js';
import { Firewall } from './firewall.js';
import { IptablesBackend } from './iptables-backend.js';
import { TriedNumbers } from './tried-numbers.js';

/** Nobody else has ports here. */
const ADDRESS = '127.83.7.19';
const endpoint = {
  networkId: 'n',
  networkName: 'n',
  endpointId: 'e',
  interfaceName: 'eth0',
  macAddress: '',
  gateway: '',
  ipv4: '10.1.0.2',
  ipv4PrefixLength: 16,
  ipv6: '',
  ipv6PrefixLength: 0,
  ipv6Gateway: '',
  aliases: [],
  dnsNames: ['web'],
  links: {},
  gatewayPriority: 0,
};
const port = (hostPort: number, hostPortEnd: number): PortRequest => ({
  protocol: 'tcp',
  containerPort: 80,
  hostIp: ADDRESS,
  hostPort,
  hostPortEnd,
});

/** Publishes nothing outside of this process. Each number that is tried is added to `tried`. */
function portsOf(tried: string[]): EndpointPorts {
  const firewall = new Firewall({
    tag: 'tried',
    backend: new IptablesBackend('tried'),
    others: [],
    families: [],
    userlandProxy: false,
    directRouting: false,
    log: silentLog,
  });
  const keptSockets = { ...NO_KEPT_SOCKETS, take: (name: string) => void tried.push(name) };
  const options = { iptables: false, firewall, log: silentLog, userlandProxy: false, outerPorts: undefined };
  return new EndpointPorts({ ...options, keptSockets }, endpoint, { link: 'br', address: '', routed: [] });
}

test('a container that wants many ports of one range tries each number once', async () => {
  const tried: string[] = [];
  const ports = portsOf(tried);
  const wanted = Array.from({ length: 300 }, () => port(21_000, 21_999));
  try {
    await ports.open(wanted);
    assert.deepEqual(
      ports.list.map(({ hostPort }) => hostPort),
      wanted.map((_, at) => 21_000 + at),
    );
    assert.equal(tried.length, 300);
  } finally {
    await ports.close();
  }
});

test('a range that is used up is refused by its last number', async () => {
  const ports = portsOf([]);
  const wanted = [port(21_000, 21_001), port(21_000, 21_001), port(21_000, 21_001)];
  await assert.rejects(ports.open(wanted), /Bind for 127\.83\.7\.19:21001 failed: port is already allocated$/);
  await ports.open(wanted.slice(1));
  await ports.close();
});

test('numbers are left out where they were tried: of this address and protocol, by whatever range', () => {
  const tried = new TriedNumbers();
  const first = (wanted: PortRequest): number | undefined => tried.choices(wanted).next().value as number | undefined;
  assert.deepEqual([...tried.choices(port(10, 14))], [10, 11, 12, 13, 14]);
  assert.equal(first(port(12, 20)), 15);
  assert.equal(first(port(9, 20)), 9);
  assert.equal(first(port(9, 20)), 16);
  assert.equal(first({ ...port(10, 20), protocol: 'udp' }), 10);
  assert.equal(first({ ...port(10, 20), hostIp: '127.83.7.20' }), 10);
  assert.deepEqual([...tried.choices(port(10, 12))], [12]);
});
