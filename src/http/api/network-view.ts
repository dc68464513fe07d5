/** Networks as the Engine API shows them. */
import { isRunning, type ContainerRecord } from '../../actors/container/container.record.js';
import type { NetworkSummary } from '../../ports/network.js';

/** Renders a network. @param containers are shown when they are attached to it. */
export function networkView(network: NetworkSummary, containers: readonly ContainerRecord[]): unknown {
  const attached = containers.filter(isRunning).flatMap((record) => {
    const endpoint = Object.values(record.networks).find(
      (attachment) => attachment.endpoint?.networkId === network.id,
    )?.endpoint;
    if (!endpoint) return [];
    const shown = {
      Name: record.name.slice(1),
      EndpointID: endpoint.endpointId,
      MacAddress: endpoint.macAddress,
      IPv4Address: endpoint.ipv4 === '' ? '' : `${endpoint.ipv4}/${endpoint.ipv4PrefixLength}`,
      IPv6Address: endpoint.ipv6 === '' ? '' : `${endpoint.ipv6}/${endpoint.ipv6PrefixLength}`,
    };
    return [[record.id, shown] as const];
  });
  return {
    Name: network.name,
    Id: network.id,
    Created: network.created,
    Scope: 'local',
    Driver: network.driver,
    EnableIPv4: network.enableIpv4,
    EnableIPv6: network.enableIpv6,
    IPAM: {
      Driver: network.ipam.driver,
      Options: network.ipam.options,
      Config: network.subnets.length === 0 ? null : network.subnets.map(subnetView),
    },
    Internal: network.internal,
    Attachable: network.attachable,
    Ingress: false,
    ConfigFrom: { Network: network.configFrom },
    ConfigOnly: network.configOnly,
    Containers: Object.fromEntries(attached),
    Options: network.options,
    Labels: network.labels,
  };
}

function subnetView({ subnet, ipRange, gateway, auxiliaryAddresses }: NetworkSummary['subnets'][number]): unknown {
  return {
    Subnet: subnet,
    ...(ipRange === '' ? {} : { IPRange: ipRange }),
    ...(gateway === '' ? {} : { Gateway: gateway }),
    ...(Object.keys(auxiliaryAddresses).length === 0 ? {} : { AuxiliaryAddresses: auxiliaryAddresses }),
  };
}
