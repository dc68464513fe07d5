/** Plans the default bridge from the daemon's options and what the host has. */
import { addressFamily } from '../sys/net/ip-address.js';
import { conflict, invalid } from '../errors/engine-error.js';
import { IPV6_MIN_MTU, type Link, type Netlink } from '../sys/netlink/route-netlink.js';
import type { AddressPlan } from './address-space.js';
import type { BridgePlan } from './bridge.js';
import { firstAddress, chooseSubnet, hostSubnets, type PoolOption } from './free-subnet.js';
import {
  contains,
  covers,
  familyOf,
  formatSubnet,
  overlaps,
  parseSubnet,
  subnetAround,
  toNumber,
  type Family,
  type Subnet,
} from './subnet.js';

export interface BridgeOptions {
  readonly name: string;
  /** Address and prefix of the bridge itself, `172.17.0.1/16`; '': the first free block of the pools. */
  readonly bip: string;
  readonly bip6: string;
  /** Part of the subnet that containers get addresses from. */
  readonly fixedCidr: string;
  readonly fixedCidrV6: string;
  readonly defaultGateway: string;
  readonly defaultGatewayV6: string;
  readonly mtu: number;
  readonly icc: boolean;
  readonly ipMasq: boolean;
  readonly ipv6: boolean;
}

interface Own {
  readonly address: string;
  readonly subnet: Subnet;
}

/** The host on which the bridge is planned, and how the bridge treats frames. */
export interface BridgeSite {
  readonly netlink: Netlink;
  readonly pools: readonly PoolOption[];
  /** The link that already has the bridge's name. */
  readonly existing: Link | undefined;
  readonly networkId: string;
  /** The bridge may send frames back where they came from. */
  readonly hairpin: boolean;
}

/**
 * Plans the bridge. Without options, the addresses that the bridge has already stay; else it gets the first block that
 * nobody uses.
 * @throws EngineError invalid naming the option; conflict when the subnet is in use on this host.
 */
export async function planDefaultBridge(
  options: BridgeOptions,
  { netlink, pools, existing, networkId, hairpin }: BridgeSite,
): Promise<BridgePlan> {
  const host = await hostSubnets(netlink, existing?.index);
  const others = [...host.addresses, ...host.routes];
  const current = existing
    ? (await netlink.addresses()).filter(({ linkIndex, ip }) => linkIndex === existing.index && !ip.startsWith('fe80:'))
    : [];
  const currentOf = (family: Family): Own | undefined => {
    const found = current.find(({ ip }) => familyOf(ip) === family);
    return found && { address: found.ip, subnet: subnetAround(found.ip, found.prefixLength) };
  };
  const own4 =
    parseBip(options.bip, 'bip', 4) ??
    currentOf(4) ??
    ownIn(fixedSubnet(options, others) ?? chooseSubnet(4, pools, others, networkId));
  const plans = [addressPlan(own4, 'fixed-cidr', options.fixedCidr, 'default-gateway', options.defaultGateway)];
  if (options.ipv6) {
    if (options.mtu < IPV6_MIN_MTU) throw invalid(`invalid mtu: ${options.mtu}: IPv6 needs ${IPV6_MIN_MTU} at least`);
    const fixed = options.fixedCidrV6 === '' ? undefined : ownIn(parseSubnet(options.fixedCidrV6, 'fixed-cidr-v6', 6));
    const own6 =
      parseBip(options.bip6, 'bip6', 6) ?? fixed ?? currentOf(6) ?? ownIn(chooseSubnet(6, pools, others, networkId));
    plans.push(addressPlan(own6, 'fixed-cidr-v6', options.fixedCidrV6, 'default-gateway-v6', options.defaultGatewayV6));
  }
  for (const { subnet } of plans) {
    // A route is no clash, because it may be wide with this network set aside as a part of it. An address of the host
    // is in use.
    const clash = host.addresses.find((other) => overlaps(other, subnet));
    if (!clash) continue;
    const flag = subnet.family === 4 ? '--bip' : '--bip6';
    throw conflict(
      `the subnet ${formatSubnet(subnet)} of bridge ${options.name} overlaps with ${formatSubnet(clash)} ` +
        `of this host; choose another one with ${flag}`,
    );
  }
  return {
    link: options.name,
    mtu: options.mtu,
    interContainer: options.icc,
    masquerade: options.ipMasq,
    sources: {},
    internal: false,
    hairpin,
    modes: { 4: 'nat', 6: 'nat' },
    addresses: plans,
  };
}

/** Finds the subnet when there is no bip: a fixed-cidr that is in no pool names it. */
function fixedSubnet({ fixedCidr }: BridgeOptions, others: readonly Subnet[]): Subnet | undefined {
  if (fixedCidr === '') return undefined;
  const fixed = parseSubnet(fixedCidr, 'fixed-cidr', 4);
  return others.some((other) => overlaps(other, fixed)) ? undefined : fixed;
}

function ownIn(subnet: Subnet): Own {
  return { address: firstAddress(subnet), subnet };
}

function parseBip(bip: string, field: string, family: Family): Own | undefined {
  if (bip === '') return undefined;
  const subnet = parseSubnet(bip, field, family);
  const address = bip.split('/')[0] ?? '';
  if (toNumber(address) === subnet.base)
    throw invalid(
      `invalid ${field}: ${bip} is the network's own address; give the bridge one inside it, ` +
        `such as ${firstAddress(subnet)}/${subnet.prefixLength}`,
    );
  return { address, subnet };
}

function addressPlan(
  { address, subnet }: Own,
  rangeField: string,
  rangeText: string,
  gatewayField: string,
  gateway: string,
): AddressPlan {
  const range = rangeText === '' ? subnet : parseSubnet(rangeText, rangeField, subnet.family);
  if (!covers(subnet, range) && !covers(range, subnet))
    throw invalid(`invalid ${rangeField}: ${rangeText} is not inside the bridge's subnet ${formatSubnet(subnet)}`);
  if (gateway !== '' && (addressFamily(gateway) === 0 || !contains(subnet, gateway)))
    throw invalid(
      `invalid ${gatewayField}: ${gateway} is not an address inside the bridge's subnet ${formatSubnet(subnet)}`,
    );
  return { subnet, hostAddress: address, gateway: gateway || address, range, reserved: [] };
}
