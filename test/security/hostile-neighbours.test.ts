/** A container that announces itself as an IPv6 router changes nothing on the host, whatever bridge it is on. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import type { HostNetworks } from '../../src/network/host-networks.js';
import { Cleanup } from '../support/cleanup.js';
import {
  attachSandbox,
  detachSandbox,
  networkPlan,
  type NetworkPlan,
  networksOf,
  runInside,
  type Sandbox,
} from '../support/host-networks.js';
import { request } from '../support/network-requests.js';
import { sendAdvertisements } from '../support/router-advertisement.js';
import { silentLog } from '../support/silent-log.js';
import { waitFor } from '../support/wait.js';

const skip = !existsSync('/proc/sys/net/ipv6') && 'this kernel has no IPv6';
const PREFIX = '2001:db8:bad::';
const COUNT = 5;
const directory = mkdtempSync(join(tmpdir(), 'hostile-'));
const cleanup = new Cleanup();

const fileOf = (link: string, name: string): string => `/proc/sys/net/ipv6/conf/${link}/${name}`;
const parameter = (link: string, name: string): string => readFileSync(fileOf(link, name), 'utf8').trim();
const setParameter = (link: string, name: string, value: string): void => writeFileSync(fileOf(link, name), value);
const ip = (...args: readonly string[]): string => execFileSync('ip', args, { encoding: 'utf8' });
const guards = (link: string): string[] => [parameter(link, 'accept_ra'), parameter(link, 'disable_ipv6')];
const hostEnd = ({ endpoint }: Sandbox): string => `veth${endpoint.endpointId.slice(0, 7)}`;

/** Gives a link the settings that a kernel gives to a new link. */
function forget(link: string): void {
  setParameter(link, 'disable_ipv6', '0');
  setParameter(link, 'accept_ra', '1');
}

/** Addresses and routes that the host has from advertisements. */
function taken(): string[] {
  const lines = [...ip('-6', '-o', 'addr').split('\n'), ...ip('-6', 'route', 'show', 'table', 'all').split('\n')];
  return lines.filter((line) => line.includes('2001:db8:bad') || line.includes('proto ra'));
}

/** Resolves when all advertisements of a container have reached the host's side of its bridge. */
async function advertise(bridge: string, { path, endpoint }: Sandbox): Promise<void> {
  const received = (): number => {
    const line = readFileSync('/proc/net/dev', 'utf8')
      .split('\n')
      .find((each) => each.trimStart().startsWith(`${bridge}:`));
    return Number(line?.split(':')[1]?.trim().split(/\s+/)[1]);
  };
  const wanted = received() + COUNT;
  sendAdvertisements({
    netnsPath: path,
    link: endpoint.interfaceName,
    mac: endpoint.macAddress,
    prefix: PREFIX,
    count: COUNT,
  });
  await waitFor('the advertisements to arrive', () => received() >= wanted);
}

async function start(plan: NetworkPlan, identities?: { value: unknown }): Promise<HostNetworks> {
  const networks = networksOf(plan, silentLog, identities);
  await networks.start();
  cleanup.add(async () => {
    for (const id of networks.sandboxIds()) await networks.removeSandbox(id);
    await networks.stop();
  });
  // Hosts that route listen to nobody; most do not, unless a network of theirs has IPv6.
  setParameter('all', 'forwarding', '0');
  return networks;
}

before(() => {
  if (skip) return;
  for (const link of ['all', 'default']) {
    const old = parameter(link, 'forwarding');
    cleanup.add(async () => setParameter(link, 'forwarding', old));
    setParameter(link, 'forwarding', '0');
  }
});
after(async () => {
  await cleanup.run();
  rmSync(directory, { recursive: true });
});

for (const ipv6 of [false, true]) {
  test(`on the default bridge ${ipv6 ? 'with' : 'without'} IPv6`, { skip }, async () => {
    const plan = networkPlan(directory, { ipv6, iptables: false });
    const networks = await start(plan);
    const sandbox = await attachSandbox(networks);
    assert.deepEqual(guards(plan.bridge), ['0', ipv6 ? '0' : '1']);
    assert.equal(parameter(hostEnd(sandbox), 'accept_ra'), '0');
    // It is up, and the kernel would have made an address for it by then.
    assert.match(ip('-o', 'link', 'show', hostEnd(sandbox)), /LOWER_UP/);
    assert.equal(ip('-6', '-o', 'addr', 'show', 'dev', hostEnd(sandbox)), '');
    const inside = runInside(sandbox.path, 'cat', fileOf(sandbox.endpoint.interfaceName, 'disable_ipv6')).trim();
    assert.equal(inside, ipv6 ? '0' : '1', 'a container without IPv6 listens to no neighbour that has it');
    await advertise(plan.bridge, sandbox);
    assert.deepEqual(taken(), []);
    if (ipv6) {
      // The attack is one: a bridge as the kernel makes it takes all that it is told.
      forget(plan.bridge);
      await advertise(plan.bridge, sandbox);
      await waitFor('a route through the container', () => taken().some((line) => line.includes('default')));
      setParameter(plan.bridge, 'disable_ipv6', '1');
    }
    await detachSandbox(networks, sandbox);
  });
}

test('on a bridge of the operator', { skip }, async () => {
  const networks = await start(networkPlan(directory, { iptables: false }));
  const [lonely, busy, uplink] = ['engo', 'engo', 'engu'].map(
    (prefix) => `${prefix}${randomBytes(3).toString('hex')}`,
  ) as [string, string, string];
  ip('link', 'add', uplink, 'type', 'veth', 'peer', 'name', `${uplink}p`);
  cleanup.add(async () => void ip('link', 'del', uplink));
  for (const link of [lonely, busy]) {
    ip('link', 'add', link, 'type', 'bridge');
    cleanup.add(async () => void ip('link', 'del', link));
    forget(link);
    ip('link', 'set', link, 'up');
  }
  ip('link', 'set', uplink, 'master', busy);
  for (const link of [lonely, busy])
    await networks.create(request(link, { subnets: [], options: { 'com.docker.network.bridge.name': link } }));
  const sandbox = await attachSandbox(networks, [], { network: lonely });
  await advertise(lonely, sandbox);
  assert.deepEqual(taken(), []);
  assert.deepEqual(guards(lonely), ['0', '0'], 'it keeps its IPv6');
  assert.deepEqual(guards(busy), ['1', '0'], 'a router behind a link of the operator is listened to');
  await detachSandbox(networks, sandbox);
  for (const link of [lonely, busy]) await networks.remove(link);
});

test('on links that an earlier version has made', { skip }, async () => {
  const plan = networkPlan(directory, { iptables: false });
  const identities = { value: undefined };
  const before = await start(plan, identities);
  const sandbox = await attachSandbox(before);
  const links = [plan.bridge, hostEnd(sandbox)];
  for (const link of links) forget(link);
  const next = await start(plan, identities);
  await next.adopt(sandbox.id, sandbox.endpoint, []);
  assert.deepEqual(guards(plan.bridge), ['0', '1']);
  assert.equal(parameter(hostEnd(sandbox), 'accept_ra'), '0');
  await advertise(plan.bridge, sandbox);
  assert.deepEqual(taken(), []);
  await detachSandbox(next, sandbox);
  await before.detach(sandbox.id, sandbox.endpoint);
});
