/** Bridges of the operator stay as they are, also those that have the name of one that was the daemon's before. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import type { HostNetworks } from '../../src/network/host-networks.js';
import type { NetworkRequest } from '../../src/ports/network.js';
import { Cleanup } from '../support/cleanup.js';
import { attachSandbox, detachSandbox, networkPlan, type NetworkPlan, networksOf } from '../support/host-networks.js';
import { request, subnet } from '../support/network-requests.js';
import { silentLog } from '../support/silent-log.js';

const directory = mkdtempSync(join(tmpdir(), 'foreign-'));
const cleanup = new Cleanup();
after(async () => {
  await cleanup.run();
  rmSync(directory, { recursive: true });
});

const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8' });
const isThere = (name: string): boolean => ip('-o', 'link').includes(` ${name}: `);
/** IPv4 addresses with their prefix lengths. */
const addressesOf = (name: string): string[] =>
  [...ip('-o', '-4', 'addr', 'show', name).matchAll(/inet (\S+)/g)].map(([, address]) => address ?? '');

function makeBridge(name: string, ...addresses: readonly string[]): void {
  ip('link', 'add', name, 'type', 'bridge');
  cleanup.add(async () => void (isThere(name) && ip('link', 'del', name)));
  for (const address of addresses) ip('addr', 'add', address, 'dev', name);
  ip('link', 'set', name, 'up');
}

const running = new Set<HostNetworks>();

async function stop(networks: HostNetworks): Promise<void> {
  if (!running.delete(networks)) return;
  for (const id of networks.sandboxIds()) await networks.removeSandbox(id);
  await networks.stop();
}

async function start(plan: NetworkPlan, identities: { value: unknown }): Promise<HostNetworks> {
  const networks = networksOf(plan, silentLog, identities);
  running.add(networks);
  cleanup.add(() => stop(networks));
  await networks.start();
  return networks;
}

const plan = (changes: Partial<NetworkPlan> = {}): NetworkPlan =>
  networkPlan(directory, { iptables: false, ...changes });
const onLink = (link: string): NetworkRequest =>
  request('user', {
    subnets: [subnet({ subnet: '10.216.5.0/24' })],
    options: { 'com.docker.network.bridge.name': link },
  });

test('a bridge that has an address gets no second one from bip', async () => {
  const wanted = plan({ bip: '10.216.2.1/24' });
  makeBridge(wanted.bridge, '10.216.1.1/24');
  await assert.rejects(
    start(wanted, { value: undefined }),
    /invalid bip: bridge \S+ was not made by this daemon and has the address 10\.216\.1\.1\/24/,
  );
  assert.deepEqual(addressesOf(wanted.bridge), ['10.216.1.1/24']);
  const networks = await start({ ...wanted, bip: '10.216.1.1/24' }, { value: undefined });
  assert.deepEqual(networks.hostAddresses(), ['10.216.1.1']);
  await stop(networks);
  assert.deepEqual(addressesOf(wanted.bridge), ['10.216.1.1/24']);
});

test('what a bridge was given goes with the daemon, also after a crash and with another bip', async () => {
  const wanted = plan({ bip: '10.216.3.1/24' });
  const identities = { value: undefined };
  makeBridge(wanted.bridge);
  await start(wanted, identities);
  assert.deepEqual(addressesOf(wanted.bridge), ['10.216.3.1/24']);
  // No daemon ended regularly: the next one finds the bridge that was left.
  const next = await start({ ...wanted, bip: '10.216.4.1/24' }, identities);
  assert.deepEqual(addressesOf(wanted.bridge), ['10.216.4.1/24']);
  const sandbox = await attachSandbox(next);
  assert.match(sandbox.endpoint.ipv4, /^10\.216\.4\./);
  await detachSandbox(next, sandbox);
  await stop(next);
  assert.deepEqual(addressesOf(wanted.bridge), []);
  assert.ok(isThere(wanted.bridge));
});

test('a network on a bridge of the operator gives back its address when it is removed', async () => {
  const networks = await start(plan(), { value: undefined });
  const link = `engo${randomBytes(3).toString('hex')}`;
  makeBridge(link, '10.216.6.1/24');
  await networks.create(onLink(link));
  assert.deepEqual(addressesOf(link), ['10.216.6.1/24', '10.216.5.1/24']);
  await networks.remove('user');
  assert.deepEqual(addressesOf(link), ['10.216.6.1/24']);
});

test("an operator's bridge with the name of one that was the daemon's is the operator's", async () => {
  const wanted = plan({ bip: '10.216.7.1/24' });
  const identities = { value: undefined };
  const first = await start(wanted, identities);
  const link = `engo${randomBytes(3).toString('hex')}`;
  await first.create(onLink(link));
  await stop(first);
  assert.deepEqual([isThere(wanted.bridge), isThere(link)], [false, false]);

  makeBridge(wanted.bridge, '10.216.7.1/24', '10.216.8.1/24');
  makeBridge(link, '10.216.9.1/24');
  const second = await start(wanted, identities);
  await stop(second);
  assert.deepEqual(addressesOf(wanted.bridge), ['10.216.7.1/24', '10.216.8.1/24']);
  assert.deepEqual(addressesOf(link), ['10.216.9.1/24']);

  // Once they are gone the daemon makes its own again, and takes them away at its end.
  for (const name of [wanted.bridge, link]) ip('link', 'del', name);
  const third = await start(wanted, identities);
  assert.deepEqual([addressesOf(wanted.bridge), addressesOf(link)], [['10.216.7.1/24'], ['10.216.5.1/24']]);
  // After a crash the bridges still belong to the daemon.
  const fourth = await start({ ...wanted, bip: '10.216.10.1/24' }, identities);
  assert.deepEqual(addressesOf(wanted.bridge), ['10.216.10.1/24']);
  await stop(fourth);
  await stop(third);
  assert.deepEqual([isThere(wanted.bridge), isThere(link)], [false, false]);
});

test('a bridge that an earlier version has made, and noted by its name alone, is taken away', async () => {
  const wanted = plan();
  const identities: { value: unknown } = { value: undefined };
  await start(wanted, identities);
  const { ownBridge, ...rest } = identities.value as { ownBridge?: { name: string } };
  identities.value = { ...rest, made: ownBridge?.name };
  const next = await start(wanted, identities);
  await stop(next);
  assert.equal(isThere(wanted.bridge), false);
});
