/** From a request for a bridge network to its record and the plan of its bridge. Pure, but for what is in `host`. */
import { isIP } from 'node:net';
import { forbidden, invalid, notFound } from '../errors/engine-error.js';
import type { NetworkRequest, NetworkSubnet, NetworkSummary } from '../ports/network.js';
import type { AddressPlan, BridgePlan } from './bridge.js';
import { freeSubnet, localSubnet, type PoolOption } from './free-subnet.js';
import { contains, covers, formatSubnet, overlaps, parseSubnet, toAddress, type Subnet } from './subnet.js';

export interface HostPlan {
  readonly pools: readonly PoolOption[];
  /** Subnets of the other networks: nobody may have them twice. */
  readonly networks: readonly Subnet[];
  /** Subnets of addresses and routes of the host: not chosen, but taken when they are asked for. */
  readonly host: readonly Subnet[];
  readonly defaultOptions: Readonly<Record<string, string>>;
}

const NAME = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;
/** IFNAMSIZ without the final NUL. */
const MAX_LINK_NAME = 15;
const PREFIXES = ['com.docker.network.', 'com.engine.network.'];
/** The daemon's --mtu is for the default bridge only. */
const DEFAULT_MTU = 1500;
const BRIDGE_DRIVER = 'bridge';

/** Checks what can be checked without looking at the host. @throws EngineError invalid or not-found. */
export function checkRequest({ name, driver, ipam, enableIpv4, enableIpv6 }: NetworkRequest): void {
  if (name.trim() === '') throw invalid('invalid network name: name is empty');
  if (!NAME.test(name)) throw invalid(`invalid network name: ${name} contains characters other than [a-zA-Z0-9][a-zA-Z0-9_.-]`);
  if (driver !== BRIDGE_DRIVER) throw notFound(`could not find plugin ${driver} in v1 plugin registry: plugin not found: ${driver}`, { code: 'NO_SUCH_DRIVER' });
  if (ipam.driver !== 'default') throw notFound(`could not find plugin ${ipam.driver} in v1 plugin registry: plugin not found: ${ipam.driver}`, { code: 'NO_SUCH_DRIVER' });
  if (!enableIpv4 && !enableIpv6) throw invalid('IPv4 or IPv6 must be enabled');
}

/** The record with every subnet settled. @throws EngineError invalid, forbidden when a subnet overlaps, unavailable. */
export function settleNetwork(request: NetworkRequest, id: string, created: string, host: HostPlan): NetworkSummary {
  const options = { ...host.defaultOptions, ...request.options };
  const given = request.subnets.filter(({ subnet }) => subnet !== '').map((config) => ({ config, subnet: parseSubnet(config.subnet, 'subnet') }));
  const subnets: NetworkSubnet[] = [];
  for (const family of [4, 6] as const) {
    if (family === 4 ? !request.enableIpv4 : !request.enableIpv6) continue;
    const here = given.filter(({ subnet }) => subnet.family === family);
    if (here.length > 1) throw forbidden("bridge driver doesn't support multiple subnets", { code: 'MULTIPLE_SUBNETS' });
    const [own] = here;
    // Without a subnet of its own an IPv4 network may still say its gateway or range: they decide nothing by themselves.
    const loose = request.subnets.find(({ subnet, gateway, ipRange }) => subnet === '' && (gateway !== '' || ipRange !== ''));
    if (!own && loose) throw invalid(`invalid network config: ${loose.gateway ? `gateway ${loose.gateway}` : `ip-range ${loose.ipRange}`} is given without its subnet`);
    const subnet = own?.subnet ?? (family === 4 ? freeSubnet(host.pools, [...host.networks, ...host.host]) : localSubnet(id));
    if (host.networks.some((other) => overlaps(other, subnet))) throw forbidden('invalid pool request: Pool overlaps with other one on this address space', { code: 'SUBNET_IN_USE' });
    subnets.push(settleSubnet(subnet, own?.config));
  }
  const lost = given.find(({ subnet }) => (subnet.family === 4 ? !request.enableIpv4 : !request.enableIpv6));
  if (lost) throw invalid(`invalid network config: subnet ${lost.config.subnet} is IPv${lost.subnet.family}, which is not enabled for this network`);
  const record = { ...request, id, created, hasNames: true, options, subnets };
  bridgePlan(record);
  return record;
}

function settleSubnet(subnet: Subnet, config: NetworkSubnet | undefined): NetworkSubnet {
  const text = formatSubnet(subnet);
  if (config && config.subnet !== text && config.subnet.split('/')[0] !== text.split('/')[0]) throw invalid(`invalid network config:\ninvalid subnet ${config.subnet}: it should be ${text}`);
  const check = (what: string, address: string): void => {
    if (isIP(address) === 0) throw invalid(`invalid network config: ${what} ${address} is not an IP address`);
    if (!contains(subnet, address)) throw invalid(`invalid network config:\ninvalid ${what} ${address}: parent subnet ${text} doesn't contain this address`);
  };
  if (config?.gateway) check('gateway', config.gateway);
  for (const address of Object.values(config?.auxiliaryAddresses ?? {})) check('auxiliary address', address);
  const range = config?.ipRange ? parseSubnet(config.ipRange, 'ip-range', subnet.family) : undefined;
  if (range && !covers(subnet, range)) throw invalid(`invalid network config:\ninvalid ip-range ${config?.ipRange ?? ''}: parent subnet ${text} doesn't contain ip-range`);
  const gateway = config?.gateway || firstFree(subnet, range, Object.values(config?.auxiliaryAddresses ?? {}));
  return { subnet: text, gateway, ipRange: range ? formatSubnet(range) : '', auxiliaryAddresses: config?.auxiliaryAddresses ?? {} };
}

/** The first address of the range that nobody else uses. */
function firstFree(subnet: Subnet, range: Subnet | undefined, taken: readonly string[]): string {
  const first = range && range.base > subnet.base ? range.base : subnet.base + 1n;
  for (let value = first; ; value++) {
    const address = toAddress(subnet.family, value);
    if (!taken.includes(address)) return address;
  }
}

/** What to make on the host for a record. @throws EngineError invalid for options that cannot be. */
export function bridgePlan(record: NetworkSummary): BridgePlan {
  const link = option(record, 'bridge.name') ?? `br-${record.id.slice(0, 12)}`;
  if (link === '' || link.length > MAX_LINK_NAME || /[\s/:]/.test(link)) throw invalid(`invalid bridge name ${link}: a link has 1 to ${MAX_LINK_NAME} characters, no slash, colon or space`);
  return {
    link,
    mtu: numberOption(record, 'driver.mtu', DEFAULT_MTU),
    interContainer: booleanOption(record, 'bridge.enable_icc', true),
    masquerade: booleanOption(record, 'bridge.enable_ip_masquerade', true),
    internal: record.internal,
    addresses: record.subnets.map(({ subnet, gateway, ipRange, auxiliaryAddresses }): AddressPlan => {
      const parsed = parseSubnet(subnet, 'subnet');
      return {
        subnet: parsed,
        bridgeAddress: gateway,
        // Nobody leaves an internal network; its gateway is still the bridge.
        gateway: record.internal ? '' : gateway,
        range: ipRange === '' ? parsed : parseSubnet(ipRange, 'ip-range'),
        reserved: Object.values(auxiliaryAddresses),
      };
    }),
  };
}

/** The value of an option under either engine's name. */
export function option({ options }: Pick<NetworkSummary, 'options'>, name: string): string | undefined {
  return PREFIXES.map((prefix) => options[prefix + name]).find((value) => value !== undefined);
}

function booleanOption(record: NetworkSummary, name: string, fallback: boolean): boolean {
  const value = option(record, name);
  if (value === undefined || value === '') return fallback;
  if (/^(1|t|true)$/i.test(value)) return true;
  if (/^(0|f|false)$/i.test(value)) return false;
  throw invalid(`invalid value for option ${name}: ${value} is not true or false`);
}

function numberOption(record: NetworkSummary, name: string, fallback: number): number {
  const value = option(record, name);
  if (value === undefined || value === '') return fallback;
  const number = Number(value);
  if (!/^\d+$/.test(value) || number < 68 || number > 65_535) throw invalid(`invalid value for option ${name}: ${value} is not a number from 68 to 65535`);
  return number;
}
