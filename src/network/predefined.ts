/** The networks that always exist: `bridge`, `host` and `none`. */
import { randomBytes } from 'node:crypto';
import type { AttachRequest, Endpoint, EndpointNames, NetworkSummary } from '../ports/network.js';
import type { BridgeOptions } from './default-bridge.js';
import type { Identity } from './network-records.js';

/** Users cannot give these names to networks. */
export const PREDEFINED: ReadonlySet<string> = new Set(['bridge', 'host', 'none', 'default']);
/** Networks of these drivers give a container nothing of its own. */
const LINKLESS: ReadonlySet<string> = new Set(['host', 'null']);

export function isLinkless({ driver }: NetworkSummary): boolean {
  return LINKLESS.has(driver);
}

export function predefined(name: string, driver: string, identity: Identity): NetworkSummary {
  return {
    ...identity,
    name,
    driver,
    internal: false,
    attachable: false,
    enableIpv4: true,
    enableIpv6: false,
    hasNames: false,
    configOnly: false,
    configFrom: '',
    ipam: { driver: 'default', options: null },
    subnets: [],
    options: {},
    labels: {},
  };
}

export function linklessNames(): EndpointNames {
  return { endpointId: randomBytes(32).toString('hex'), interfaceName: '' };
}

export function endpointWithoutLink(
  { id, name }: NetworkSummary,
  { aliases, dnsNames, names }: AttachRequest,
): Endpoint {
  return {
    networkId: id,
    networkName: name,
    ...(names ?? linklessNames()),
    macAddress: '',
    ipv4: '',
    ipv4PrefixLength: 0,
    gateway: '',
    ipv6: '',
    ipv6PrefixLength: 0,
    ipv6Gateway: '',
    aliases,
    dnsNames,
    links: {},
    gatewayPriority: 0,
  };
}

/** Options of the default bridge under the names that clients read. */
export function bridgeLabels(options: BridgeOptions, publishIp: string): Record<string, string> {
  return {
    'com.docker.network.bridge.default_bridge': 'true',
    'com.docker.network.bridge.enable_icc': String(options.icc),
    'com.docker.network.bridge.enable_ip_masquerade': String(options.ipMasq),
    'com.docker.network.bridge.host_binding_ipv4': publishIp,
    'com.docker.network.bridge.name': options.name,
    'com.docker.network.driver.mtu': String(options.mtu),
  };
}
