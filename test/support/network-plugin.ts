/** A network driver that really makes a bridge for each network and a pair of links for each endpoint. */
import { execFileSync } from 'node:child_process';
import { type Handler, PluginServer } from './plugin-server.js';

interface Pool {
  readonly Pool: string;
  readonly Gateway: string;
}

interface Interface {
  readonly Address?: string;
  readonly AddressIPv6?: string;
  readonly MacAddress?: string;
}

const ip = (...args: string[]): void => void execFileSync('ip', args, { stdio: 'ignore' });
const bridgeOf = (network: unknown): string => `pb${String(network).slice(0, 10)}`;
const hostLinkOf = (endpoint: unknown): string => `ph${String(endpoint).slice(0, 10)}`;
const peerOf = (endpoint: unknown): string => `pp${String(endpoint).slice(0, 10)}`;

/** Its networks by ID, with the IDs of their endpoints. */
export class NetworkPluginServer extends PluginServer {
  readonly networks: ReadonlyMap<string, ReadonlySet<string>>;

  /** `join` is added to the answers to Join. */
  constructor(
    name: string,
    join: Readonly<Record<string, unknown>> = {},
    more: Readonly<Record<string, Handler>> = {},
  ) {
    const networks = new Map<string, Set<string>>();
    const pools = new Map<string, { readonly v4: readonly Pool[]; readonly v6: readonly Pool[] }>();
    const endpoints = (id: unknown): Set<string> => {
      const found = networks.get(String(id));
      if (!found) throw new Error(`no network ${String(id)}`);
      return found;
    };
    super(name, ['NetworkDriver'], {
      'NetworkDriver.GetCapabilities': () => ({ Scope: 'local', ConnectivityScope: 'local' }),
      'NetworkDriver.CreateNetwork': ({ NetworkID, IPv4Data, IPv6Data, Options }) => {
        const generic = (Options as Record<string, Record<string, string> | undefined> | null)?.[
          'com.docker.network.generic'
        ];
        if (generic?.['bad'] !== undefined) throw new Error('bad option');
        const [v4, v6] = [(IPv4Data as readonly Pool[] | null) ?? [], (IPv6Data as readonly Pool[] | null) ?? []];
        const bridge = bridgeOf(NetworkID);
        ip('link', 'add', bridge, 'type', 'bridge');
        for (const { Gateway } of [...v4, ...v6])
          if (Gateway) ip('addr', 'add', Gateway, 'dev', bridge, ...(Gateway.includes(':') ? ['nodad'] : []));
        ip('link', 'set', bridge, 'up');
        networks.set(String(NetworkID), new Set());
        pools.set(String(NetworkID), { v4, v6 });
      },
      'NetworkDriver.DeleteNetwork': ({ NetworkID }) => {
        if (endpoints(NetworkID).size > 0) throw new Error('has endpoints');
        ip('link', 'del', bridgeOf(NetworkID));
        networks.delete(String(NetworkID));
      },
      'NetworkDriver.CreateEndpoint': ({ NetworkID, EndpointID, Interface: given }) => {
        endpoints(NetworkID).add(String(EndpointID));
        return (given as Interface | null)?.MacAddress
          ? { Interface: {} }
          : { Interface: { MacAddress: '02:aa:bb:cc:dd:01' } };
      },
      'NetworkDriver.DeleteEndpoint': ({ NetworkID, EndpointID }) =>
        void endpoints(NetworkID).delete(String(EndpointID)),
      'NetworkDriver.EndpointOperInfo': ({ NetworkID }) => (endpoints(NetworkID), { Value: {} }),
      'NetworkDriver.Join': ({ NetworkID, EndpointID }) => {
        if (!endpoints(NetworkID).has(String(EndpointID))) throw new Error(`no endpoint ${String(EndpointID)}`);
        ip('link', 'add', hostLinkOf(EndpointID), 'type', 'veth', 'peer', 'name', peerOf(EndpointID));
        ip('link', 'set', hostLinkOf(EndpointID), 'master', bridgeOf(NetworkID), 'up');
        const { v4 = [], v6 = [] } = pools.get(String(NetworkID)) ?? {};
        const plain = (pool: readonly Pool[]): string => pool[0]?.Gateway?.split('/')[0] ?? '';
        return {
          InterfaceName: { SrcName: peerOf(EndpointID), DstPrefix: 'plug' },
          Gateway: plain(v4),
          GatewayIPv6: plain(v6),
          ...join,
        };
      },
      'NetworkDriver.Leave': ({ EndpointID }) => {
        // It may have gone with its peer, in the namespace of the container.
        try {
          ip('link', 'del', hostLinkOf(EndpointID));
        } catch {
          return;
        }
      },
      'NetworkDriver.DiscoverNew': () => undefined,
      'NetworkDriver.DiscoverDelete': () => undefined,
      'NetworkDriver.ProgramExternalConnectivity': () => undefined,
      'NetworkDriver.RevokeExternalConnectivity': () => undefined,
      ...more,
    });
    this.networks = networks;
  }
}
