/** Network drivers over the plugin protocol. */
import { isIP } from 'node:net';
import { internal, type EngineError } from '../errors/engine-error.js';
import type {
  AddressPlugin,
  NetworkPlugin,
  NetworkPlugins,
  PluginInterface,
  PluginJoin,
  PluginNetworkRequest,
  PluginPool,
  PluginRoute,
} from '../ports/network-plugin.js';
import type { PortRequest } from '../ports/network.js';
import { ProtocolAddressPlugin } from './address-plugin.js';
import { memberOf } from './plugin-client.js';
import { PluginDirectory } from './plugin-directory.js';
import type { Plugin, PluginOptions } from './plugin.js';
import { askRemote, isCidr, textMember } from './remote-answers.js';

const PROTOCOL_NUMBERS: Readonly<Record<PortRequest['protocol'], number>> = { tcp: 6, udp: 17, sctp: 132 };
const MAC_ADDRESS = /^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$/i;
const LINK_NAME = /^[^\s/:]{1,15}$/;
const LINK_PREFIX = /^[a-zA-Z][a-zA-Z0-9_.-]{0,11}$/;
/** The kind of a route on the link; the other kind goes by a gateway. */
const CONNECTED = 1;

export class ProtocolNetworkPlugins implements NetworkPlugins {
  readonly #networks: PluginDirectory;
  readonly #addresses: PluginDirectory;

  constructor(options: PluginOptions = {}) {
    this.#networks = new PluginDirectory('NetworkDriver', options);
    this.#addresses = new PluginDirectory('IpamDriver', options);
  }

  get known(): readonly string[] {
    return this.#networks.known;
  }

  async network(name: string): Promise<NetworkPlugin> {
    return new ProtocolNetworkPlugin(await this.#networks.find(name));
  }

  async addresses(name: string): Promise<AddressPlugin> {
    return new ProtocolAddressPlugin(await this.#addresses.find(name));
  }

  close(): void {
    this.#networks.close();
    this.#addresses.close();
  }
}

class ProtocolNetworkPlugin implements NetworkPlugin {
  constructor(private readonly plugin: Plugin) {}

  get name(): string {
    return this.plugin.id;
  }

  async scope(): Promise<string> {
    return textMember('NetworkDriver.GetCapabilities', await this.#ask('GetCapabilities', {}), 'scope');
  }

  async createNetwork({
    id,
    options,
    internal: isInternal,
    enableIpv4,
    enableIpv6,
    ipv4,
    ipv6,
  }: PluginNetworkRequest): Promise<void> {
    await this.#ask('CreateNetwork', {
      NetworkID: id,
      Options: {
        'com.docker.network.enable_ipv4': enableIpv4,
        'com.docker.network.enable_ipv6': enableIpv6,
        ...(isInternal ? { 'com.docker.network.internal': true } : {}),
        'com.docker.network.generic': options,
      },
      IPv4Data: ipv4.map(poolFields),
      IPv6Data: ipv6.map(poolFields),
    });
  }

  async deleteNetwork(networkId: string): Promise<void> {
    await this.#ask('DeleteNetwork', { NetworkID: networkId });
  }

  async createEndpoint(
    networkId: string,
    endpointId: string,
    wanted: PluginInterface,
    ports: readonly PortRequest[],
    options: Readonly<Record<string, string>>,
  ): Promise<PluginInterface> {
    const method = 'NetworkDriver.CreateEndpoint';
    const { ipv4, ipv6, macAddress } = wanted;
    const answer = await this.#ask('CreateEndpoint', {
      NetworkID: networkId,
      EndpointID: endpointId,
      Interface: { Address: ipv4, AddressIPv6: ipv6, MacAddress: macAddress },
      Options: { ...options, ...portOptions(ports) },
    });
    const given = memberOf(answer, 'interface');
    const made = {
      ipv4: textMember(method, given, 'address'),
      ipv6: textMember(method, given, 'addressipv6'),
      macAddress: textMember(method, given, 'macaddress'),
    };
    for (const [member, wantedValue, isValid] of [
      ['ipv4', ipv4, (text: string) => isCidr(text, 4)],
      ['ipv6', ipv6, (text: string) => isCidr(text, 6)],
      ['macAddress', macAddress, (text: string) => MAC_ADDRESS.test(text)],
    ] as const) {
      const value = made[member];
      if (value === '' || value === wantedValue) continue;
      if (wantedValue !== '') throw wrong(method, `changes ${wantedValue} to ${value}, which was not its to choose`);
      if (!isValid(value)) throw wrong(method, `has no valid ${member}: ${value}`);
    }
    return { ipv4: made.ipv4 || ipv4, ipv6: made.ipv6 || ipv6, macAddress: made.macAddress || macAddress };
  }

  async deleteEndpoint(networkId: string, endpointId: string): Promise<void> {
    await this.#ask('DeleteEndpoint', { NetworkID: networkId, EndpointID: endpointId });
  }

  async join(
    networkId: string,
    endpointId: string,
    sandboxPath: string,
    ports: readonly PortRequest[],
  ): Promise<PluginJoin> {
    const method = 'NetworkDriver.Join';
    const answer = await this.#ask('Join', {
      NetworkID: networkId,
      EndpointID: endpointId,
      SandboxKey: sandboxPath,
      Options: portOptions(ports),
    });
    const names = memberOf(answer, 'interfacename');
    const link = textMember(method, names, 'srcname');
    const prefix = textMember(method, names, 'dstprefix') || 'eth';
    if (link !== '' && !LINK_NAME.test(link)) throw wrong(method, `names no link: ${link}`);
    if (!LINK_PREFIX.test(prefix)) throw wrong(method, `has no valid DstPrefix: ${prefix}`);
    const gateway = textMember(method, answer, 'gateway');
    const ipv6Gateway = textMember(method, answer, 'gatewayipv6');
    for (const [address, family] of [
      [gateway, 4],
      [ipv6Gateway, 6],
    ] as const)
      if (address !== '' && isIP(address) !== family)
        throw wrong(method, `has no valid IPv${family} gateway: ${address}`);
    return { link, prefix, gateway, ipv6Gateway, routes: routesOf(method, memberOf(answer, 'staticroutes')) };
  }

  async leave(networkId: string, endpointId: string): Promise<void> {
    await this.#ask('Leave', { NetworkID: networkId, EndpointID: endpointId });
  }

  async program(networkId: string, endpointId: string, ports: readonly PortRequest[]): Promise<void> {
    await this.#ask('ProgramExternalConnectivity', {
      NetworkID: networkId,
      EndpointID: endpointId,
      Options: portOptions(ports),
    });
  }

  async revoke(networkId: string, endpointId: string): Promise<void> {
    await this.#ask('RevokeExternalConnectivity', { NetworkID: networkId, EndpointID: endpointId });
  }

  #ask(method: string, argument: unknown): Promise<unknown> {
    return askRemote(this.plugin, `NetworkDriver.${method}`, argument);
  }
}

function poolFields({
  addressSpace,
  subnet,
  gateway,
  auxiliaryAddresses,
}: PluginPool): Readonly<Record<string, unknown>> {
  return {
    AddressSpace: addressSpace,
    Pool: subnet,
    ...(gateway === '' ? {} : { Gateway: gateway }),
    ...(Object.keys(auxiliaryAddresses).length === 0 ? {} : { AuxAddresses: auxiliaryAddresses }),
  };
}

function portOptions(ports: readonly PortRequest[]): Readonly<Record<string, unknown>> {
  const numbered = ports.map((port) => ({ ...port, number: PROTOCOL_NUMBERS[port.protocol] }));
  const exposed = new Map(
    numbered.map(({ number, containerPort }) => [`${containerPort}/${number}`, { Proto: number, Port: containerPort }]),
  );
  return {
    'com.docker.network.endpoint.exposedports': [...exposed.values()],
    'com.docker.network.portmap': numbered.map(({ number, containerPort, hostIp, hostPort, hostPortEnd }) => ({
      Proto: number,
      IP: '',
      Port: containerPort,
      HostIP: hostIp,
      HostPort: hostPort,
      HostPortEnd: hostPortEnd ?? hostPort,
    })),
  };
}

function routesOf(method: string, value: unknown): PluginRoute[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw wrong(method, 'has StaticRoutes that are not a list');
  return value.map((route: unknown) => {
    const destination = textMember(method, route, 'destination');
    const nextHop = memberOf(route, 'routetype') === CONNECTED ? '' : textMember(method, route, 'nexthop');
    const family = isIP(destination.split('/')[0] ?? '');
    if ((family !== 4 && family !== 6) || !isCidr(destination, family))
      throw wrong(method, `has a route to nowhere: ${destination}`);
    if (nextHop !== '' && isIP(nextHop) !== family)
      throw wrong(method, `has a route over no IPv${family} address: ${nextHop}`);
    return { destination, nextHop };
  });
}

function wrong(method: string, what: string): EngineError {
  return internal(`${method}: the answer ${what}`, { code: 'PLUGIN' });
}
