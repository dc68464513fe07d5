/** Networks as the Engine API shows them. */
import { isRunning, type ContainerRecord } from '../../actors/container/container.record.js';
import type { NetworkSummary } from '../../ports/network.js';
import { parseFilters } from '../api/filters.js';
import { route, type Route } from '../route.js';

export interface NetworkRouteDeps {
  readonly networks: { list(): readonly NetworkSummary[]; resolve(reference: string): NetworkSummary };
  readonly containers: { list(): readonly ContainerRecord[] };
}

const PREDEFINED = new Set(['bridge', 'host', 'none']);

export function networkRoutes({ networks, containers }: NetworkRouteDeps): Route[] {
  return [
    route('GET', '/networks', (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['dangling', 'driver', 'id', 'label', 'name', 'scope', 'type']);
      const dangling = filters.flag('dangling');
      const selected = networks.list().filter(
        (network) =>
          filters.matchesExactly('driver', network.driver) &&
          filters.matchesPattern('id', network.id) &&
          filters.matchesPattern('name', network.name) &&
          filters.matchesLabels(network.labels) &&
          filters.matchesExactly('scope', 'local') &&
          filters.matchesExactly('type', PREDEFINED.has(network.name) ? 'builtin' : 'custom') &&
          (dangling === undefined || dangling === !PREDEFINED.has(network.name)),
      );
      x.sendJson(200, selected.map((network) => networkView(network, [])));
    }),
    route('GET', '/networks/{name...}', (x) => {
      x.sendJson(200, networkView(networks.resolve(x.param('name')), containers.list()));
    }),
  ];
}

function networkView(network: NetworkSummary, containers: readonly ContainerRecord[]): unknown {
  const attached = containers.filter(isRunning).flatMap((record) => {
    const endpoint = Object.values(record.networks).find((attachment) => attachment.endpoint?.networkId === network.id)?.endpoint;
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
    EnableIPv4: true,
    EnableIPv6: network.enableIpv6,
    IPAM: {
      Driver: 'default',
      Options: null,
      Config: network.subnets.length === 0 ? null : network.subnets.map(({ subnet, gateway }) => ({ Subnet: subnet, ...(gateway ? { Gateway: gateway } : {}) })),
    },
    Internal: network.internal,
    Attachable: false,
    Ingress: false,
    ConfigFrom: { Network: '' },
    ConfigOnly: false,
    Containers: Object.fromEntries(attached),
    Options: network.options,
    Labels: network.labels,
  };
}
