/**
 * Turns a request for a bridge network into its record and the plan of its bridge. Pure, except for what `host`
 * returns.
 */
import { addressFamily } from '../sys/net/ip-address.js';
import { type EngineError, forbidden, invalid } from '../errors/engine-error.js';
import { notManager } from '../errors/not-manager.js';
import type { NetworkRequest, NetworkSubnet, NetworkSummary } from '../ports/network.js';
import { IPV6_MIN_MTU } from '../sys/netlink/route-netlink.js';
import { noAddress } from './address-pool.js';
import type { AddressPlan } from './address-space.js';
import type { BridgePlan } from './bridge.js';
import { bridgeNameProblem } from './bridge-name.js';
import { chooseSubnet, type PoolOption } from './free-subnet.js';
import { gatewayMode } from './gateway-mode.js';
import { addressOption, booleanOption, numberOption, option, withoutNamed } from './network-options.js';
import { checkPools, type LeasedPool } from './plugin-addresses.js';
import {
  contains,
  covers,
  type Family,
  formatSubnet,
  overlaps,
  parseSubnet,
  sizeOf,
  toAddress,
  toNumber,
  type Subnet,
} from './subnet.js';

export interface HostPlan {
  readonly pools: readonly PoolOption[];
  /** Subnets of the other networks; no network may overlap them. */
  readonly networks: readonly Subnet[];
  /** Subnets of addresses and routes of the host. They are not chosen, but a client may ask for them. */
  readonly host: readonly Subnet[];
  readonly defaultOptions: Readonly<Record<string, string>>;
  /** Another process has given these addresses for the network. */
  readonly leased: readonly LeasedPool[] | undefined;
}

/** The daemon's --mtu applies to the default bridge only; this is for the others. */
const DEFAULT_MTU = 1500;
/** The engine's own drivers; any other name is that of a plugin. */
const DRIVERS = new Set(['bridge', 'macvlan', 'ipvlan']);
/** The names that clients see. Users cannot make networks of `host` and `null`. */
export const NETWORK_DRIVERS: readonly string[] = [...DRIVERS, 'host', 'null'].toSorted();
/** The engine's own address managers. `null` has no addresses, for drivers that bring theirs. */
const ADDRESS_MANAGERS = new Set(['default', 'null']);

export function isPluginDriver(driver: string): boolean {
  return !DRIVERS.has(driver);
}

export function isPluginIpam({ ipam }: Pick<NetworkSummary, 'ipam'>): boolean {
  return !ADDRESS_MANAGERS.has(ipam.driver);
}

/**
 * Checks what can be checked without looking at the host or asking a plugin. @throws EngineError invalid, forbidden or
 * unavailable.
 */
export function checkRequest({ name, driver, ipam, enableIpv4, enableIpv6, configOnly }: NetworkRequest): void {
  if (name.trim() === '') throw invalid('invalid network name: name is empty');
  if (!enableIpv4 && !enableIpv6) throw invalid('IPv4 or IPv6 must be enabled');
  if (ipam.driver === 'null' && !isPluginDriver(driver)) throw invalid(`ipv${enableIpv4 ? 4 : 6} pool is empty`);
  if (configOnly || !isPluginDriver(driver)) return;
  if (driver === 'host' || driver === 'null')
    throw forbidden(`only one instance of "${driver}" network is allowed`, { code: 'ONE_INSTANCE' });
  if (driver === 'overlay') throw notManager();
}

/**
 * Returns the record with every subnet decided. @throws EngineError invalid, forbidden when a subnet overlaps,
 * unavailable.
 */
export function settleNetwork(request: NetworkRequest, id: string, created: string, host: HostPlan): NetworkSummary {
  const options = { ...withoutNamed(host.defaultOptions, request.options), ...request.options };
  const settled = { ...request, id, created, hasNames: true, options };
  if (request.ipam.driver === 'null') return { ...settled, subnets: [] };
  if (host.leased) {
    checkPools(host.leased, host.networks);
    return { ...settled, subnets: host.leased.map(({ subnet }) => subnet) };
  }
  // Gateways and ranges need a subnet that is given.
  if (request.subnets.some(({ subnet }) => subnet === ''))
    throw invalid('invalid network config:\ninvalid subnet : invalid CIDR block notation');
  const given = request.subnets.map((config) => ({ config, subnet: wantedSubnet(config.subnet) }));
  const lost = given.find(({ subnet }) => (subnet.family === 4 ? !request.enableIpv4 : !request.enableIpv6));
  if (lost)
    throw invalid(
      `invalid network config: subnet ${lost.config.subnet} is IPv${lost.subnet.family}, ` +
        'which is not enabled for this network',
    );
  const taken = [...host.networks];
  const subnets = ([4, 6] as const).flatMap((family) => {
    if (family === 4 ? !request.enableIpv4 : !request.enableIpv6) return [];
    const here = given.filter(({ subnet }) => subnet.family === family);
    if (here.length > 1 && request.driver === 'bridge')
      throw forbidden("bridge driver doesn't support multiple subnets", { code: 'MULTIPLE_SUBNETS' });
    const chosen =
      here.length > 0
        ? here
        : [{ subnet: chooseSubnet(family, host.pools, [...host.networks, ...host.host], id), config: undefined }];
    return chosen.map(({ subnet, config }) => {
      if (taken.some((other) => overlaps(other, subnet)))
        throw forbidden('invalid pool request: Pool overlaps with other one on this address space', {
          code: 'SUBNET_IN_USE',
        });
      taken.push(subnet);
      return settleSubnet(
        subnet,
        config,
        request.driver === 'bridge' && gatewayMode({ options, internal: request.internal }, family) === 'isolated',
      );
    });
  });
  return { ...settled, subnets };
}

/** @throws EngineError invalid in the words of the known engine. */
function wantedSubnet(text: string): Subnet {
  try {
    return parseSubnet(text, 'subnet');
  } catch (error) {
    throw invalid(`invalid network config:\ninvalid subnet ${text}: invalid CIDR block notation`, { cause: error });
  }
}

/** Decides a subnet. `isolated`: nobody needs a gateway. */
function settleSubnet(subnet: Subnet, config: NetworkSubnet | undefined, isolated: boolean): NetworkSubnet {
  const text = formatSubnet(subnet);
  const given = config?.subnet.split('/')[0];
  if (given !== undefined && toNumber(given) !== subnet.base)
    throw invalid(`invalid network config:\ninvalid subnet ${config?.subnet}: it should be ${text}`);
  const check = (what: string, address: string): void => {
    if (addressFamily(address) === 0) throw invalid(`invalid network config:\ninvalid ${what}: invalid address`);
    if (!contains(subnet, address))
      throw invalid(`invalid network config:\ninvalid ${what}: parent subnet ${text} doesn't contain this address`);
  };
  if (config?.gateway) check(`gateway ${config.gateway}`, config.gateway);
  // An address can be written in several ways.
  const used = new Set(config?.gateway ? [toNumber(config.gateway)] : []);
  const auxiliary = Object.entries(config?.auxiliaryAddresses ?? {});
  for (const [name, address] of auxiliary) {
    check(`auxiliary address ${name}`, address);
    const value = toNumber(address);
    if (used.has(value))
      throw forbidden(`failed to allocate secondary ip address (${name}:${address}): Address already in use`, {
        code: 'ADDRESS_IN_USE',
      });
    used.add(value);
  }
  const range = config?.ipRange ? wantedRange(config.ipRange, subnet) : undefined;
  const gateway = config?.gateway || isolated ? (config?.gateway ?? '') : firstFree(subnet, range, used);
  // An IPv6 address can be written in many ways, and clients must see it as they wrote it.
  return {
    subnet: subnet.family === 6 ? (config?.subnet ?? text) : text,
    gateway,
    ipRange: range ? formatSubnet(range) : '',
    auxiliaryAddresses: config?.auxiliaryAddresses ?? {},
  };
}

/** @throws EngineError invalid for a range that is none, is not written as the range, or leaves the subnet. */
function wantedRange(text: string, subnet: Subnet): Subnet {
  const refuse = (reason: string): EngineError =>
    invalid(`invalid network config:\ninvalid ip-range ${text}: ${reason}`);
  let range: Subnet;
  try {
    range = parseSubnet(text, 'ip-range', subnet.family);
  } catch {
    throw refuse('invalid CIDR block notation');
  }
  if (toNumber(text.split('/')[0] ?? '') !== range.base) throw refuse(`it should be ${formatSubnet(range)}`);
  if (!covers(subnet, range)) throw refuse(`parent subnet ${formatSubnet(subnet)} doesn't contain ip-range`);
  return range;
}

/** Returns the first address of the range that nobody else uses. @throws EngineError unavailable when there is none. */
function firstFree(subnet: Subnet, range: Subnet | undefined, taken: ReadonlySet<bigint>): string {
  const end = subnet.base + sizeOf(subnet) - 1n;
  const isTiny = sizeOf(subnet) <= 2n;
  const lowest = isTiny ? subnet.base : subnet.base + 1n;
  const highest = isTiny || subnet.family === 6 ? end : end - 1n;
  const rangeEnd = range ? range.base + sizeOf(range) - 1n : end;
  for (let value = range && range.base > lowest ? range.base : lowest; value <= highest && value <= rangeEnd; value++) {
    if (!taken.has(value)) return toAddress(subnet.family, value);
  }
  throw noAddress(subnet);
}

/**
 * Returns the links to make on the host for a record. @throws EngineError invalid for options that cannot be fulfilled.
 */
export function bridgePlan(record: NetworkSummary, hairpin: boolean): BridgePlan {
  const link = option(record, 'bridge.name') || `br-${record.id.slice(0, 12)}`;
  const problem = bridgeNameProblem(link);
  if (problem !== undefined) throw invalid(problem);
  const sources = ([4, 6] as const).flatMap((family): [Family, string][] => {
    const address = addressOption(record, `host_ipv${family}`, family);
    return address === '' ? [] : [[family, address]];
  });
  const modes = { 4: gatewayMode(record, 4), 6: gatewayMode(record, 6) };
  const mtu = numberOption(record, 'driver.mtu', DEFAULT_MTU);
  if (record.enableIpv6 && mtu < IPV6_MIN_MTU)
    throw invalid(`invalid MTU number: ${mtu}: IPv6 needs ${IPV6_MIN_MTU} at least`);
  return {
    link,
    mtu,
    interContainer: booleanOption(record, 'bridge.enable_icc', true),
    masquerade: booleanOption(record, 'bridge.enable_ip_masquerade', true),
    sources: Object.fromEntries(sources),
    internal: record.internal,
    hairpin,
    modes,
    addresses: addressPlans(record, record.internal).map((plan) => {
      const { family } = plan.subnet;
      // With this option the bridge gets no address from the daemon: the operator gives it one, or something else on
      // the link has the gateway's address.
      const isInhibited = family === 4 && booleanOption(record, 'bridge.inhibit_ipv4', false);
      return isInhibited || modes[family] === 'isolated' ? { ...plan, hostAddress: '' } : plan;
    }),
  };
}

/**
 * Returns the addresses of a record. `isolated`: nobody leaves. The gateway of an internal bridge is still the bridge.
 */
export function addressPlans({ subnets }: NetworkSummary, isolated: boolean): AddressPlan[] {
  return subnets.map(({ subnet, gateway, ipRange, auxiliaryAddresses }) => {
    const parsed = parseSubnet(subnet, 'subnet');
    return {
      subnet: parsed,
      hostAddress: gateway,
      gateway: isolated ? '' : gateway,
      range: ipRange === '' ? parsed : parseSubnet(ipRange, 'ip-range'),
      reserved: Object.values(auxiliaryAddresses),
    };
  });
}

/** Returns the host address of published ports that name none; '' means every address. @throws EngineError invalid. */
export function bindingAddress(record: Pick<NetworkSummary, 'options'>): string {
  const address = addressOption(record, 'bridge.host_binding_ipv4', 4);
  return address === '0.0.0.0' ? '' : address;
}

/** Returns the beginning of the names of links inside containers. @throws EngineError invalid. */
export function interfacePrefix(record: Pick<NetworkSummary, 'options'>): string {
  const prefix = option(record, 'container_iface_prefix') || 'eth';
  if (!/^[a-zA-Z][a-zA-Z0-9_.-]{0,11}$/.test(prefix))
    throw invalid(`invalid value for option container_iface_prefix: ${prefix} is not the beginning of a link's name`);
  return prefix;
}
