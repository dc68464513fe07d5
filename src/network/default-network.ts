/** Makes the default network: its bridge on the host, and the data that clients see of it. */
import { invalid } from '../errors/engine-error.js';
import type { NetworkSummary } from '../ports/network.js';
import type { Link, LinkAddress, Netlink } from '../sys/netlink/route-netlink.js';
import { type Bridge, type BridgePlan, hostAddresses } from './bridge.js';
import { planDefaultBridge, type BridgeOptions } from './default-bridge.js';
import type { PoolOption } from './free-subnet.js';
import { type HostBridges, isForeignBridge, randomMac } from './host-bridges.js';
import type { NetworkRecords } from './network-records.js';
import { bridgeLabels, predefined } from './predefined.js';
import { familyOf, formatSubnet } from './subnet.js';

interface Surroundings {
  readonly netlink: Netlink;
  readonly bridges: HostBridges;
  readonly records: NetworkRecords;
  readonly addressPools: readonly PoolOption[];
  readonly publishIp: string;
  readonly userlandProxy: boolean;
}

/**
 * Makes the bridge or takes the one that exists.
 * @throws EngineError invalid for addresses that the bridge cannot have, conflict for addresses that are in use.
 */
export async function openDefaultBridge(
  wanted: BridgeOptions,
  around: Surroundings,
): Promise<{ readonly summary: NetworkSummary; readonly bridge: Bridge }> {
  const { netlink, bridges, records, addressPools, publishIp, userlandProxy } = around;
  const existing = (await netlink.links()).find(({ name }) => name === wanted.name);
  if (existing && existing.kind !== 'bridge')
    throw invalid(`bridge ${wanted.name}: there is a link of this name that is not a bridge`);
  const mac = records.ownBridge(wanted.name, existing) ?? randomMac();
  const ownership = { mac, foreign: false };
  const plan = await planDefaultBridge(wanted, {
    netlink,
    pools: addressPools,
    existing,
    networkId: records.identity('bridge').id,
    hairpin: !userlandProxy,
  });
  if (existing && isForeignBridge(existing, ownership))
    checkAddresses(plan, existing, await netlink.addresses(), records.lent(existing));
  else await records.noteBridge(wanted.name, mac);
  const bridge = await bridges.open(plan, existing, ownership);
  const subnets = plan.addresses.map(({ subnet, gateway }) => ({
    subnet: formatSubnet(subnet),
    gateway,
    ipRange: '',
    auxiliaryAddresses: {},
  }));
  const summary = {
    ...predefined('bridge', 'bridge', records.identity('bridge')),
    enableIpv6: wanted.ipv6,
    subnets,
    options: bridgeLabels(wanted, publishIp),
  };
  return { summary, bridge };
}

/**
 * Refuses a second address in a family for somebody else's bridge. `lent` are addresses that the daemon gave it and may
 * take back.
 */
function checkAddresses(
  plan: BridgePlan,
  { index, name }: Link,
  all: readonly (LinkAddress & { readonly linkIndex: number })[],
  lent: readonly LinkAddress[],
): void {
  const isOf = (list: readonly LinkAddress[], { ip, prefixLength }: LinkAddress): boolean =>
    list.some((each) => each.ip === ip && each.prefixLength === prefixLength);
  for (const wanted of hostAddresses(plan)) {
    const family = familyOf(wanted.ip);
    const there = all.filter(
      ({ linkIndex, ip }) => linkIndex === index && familyOf(ip) === family && !ip.startsWith('fe80:'),
    );
    const others = there.filter((address) => !isOf(lent, address));
    const [first] = others;
    if (!first || isOf(others, wanted)) continue;
    const option = family === 4 ? 'bip' : 'bip6';
    throw invalid(
      `invalid ${option}: bridge ${name} was not made by this daemon and has the address ` +
        `${first.ip}/${first.prefixLength}, ` +
        `not ${wanted.ip}/${wanted.prefixLength}: leave ${option} out to use the bridge as it is, ` +
        'or name another bridge',
    );
  }
}
