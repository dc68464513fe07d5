/** Networks as the Engine API shows them. */
import type { ContainerRecord } from '../../actors/container/container.record.js';
import type { ContainerDirectory } from '../../actors/container/directory.js';
import { isLive, type NetworkChange } from '../../actors/container/network/network-change.js';
import { conflict, forbidden, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import type { WantedNetwork, NetworkSummary } from '../../ports/network.js';
import { decodeEndpoint } from '../api/container-create.js';
import { anything, boolean, dictionary, ignored, list, nullable, object, optional, string } from '../api/decode.js';
import { parseFilters } from '../api/filters.js';
import { networkView } from '../api/network-view.js';
import { untilOf } from '../api/until.js';
import { route, type Route } from '../route.js';

export interface NetworkRouteDeps {
  readonly networks: {
    list(): readonly NetworkSummary[];
    resolve(reference: string): NetworkSummary;
    create(request: WantedNetwork): Promise<NetworkSummary>;
    remove(reference: string): Promise<NetworkSummary>;
  };
  readonly containers: Pick<ContainerDirectory, 'list' | 'find' | 'rewire'>;
  readonly emit: (action: string, id: string, attributes: Readonly<Record<string, string>>) => void;
}

const PREDEFINED = new Set(['bridge', 'host', 'none']);

const ipamConfig = object({
  Subnet: string(),
  IPRange: string(),
  Gateway: string(),
  AuxiliaryAddresses: nullable(dictionary(string())),
});
const body = object({
  Name: string(),
  CheckDuplicate: ignored(boolean()),
  Driver: string(),
  Internal: boolean(),
  Attachable: boolean(),
  Ingress: boolean(),
  ConfigOnly: boolean(),
  ConfigFrom: object({ Network: string() }),
  Scope: string(),
  EnableIPv4: optional(boolean()),
  EnableIPv6: optional(boolean()),
  IPAM: nullable(
    object({ Driver: string(), Options: nullable(dictionary(string())), Config: nullable(list(ipamConfig)) }),
  ),
  Options: nullable(dictionary(string())),
  Labels: nullable(dictionary(string())),
});

const connectBody = object({ Container: string(), EndpointConfig: anything() });
const disconnectBody = object({ Container: string(), Force: boolean() });

export function networkRoutes({ networks, containers, emit }: NetworkRouteDeps): Route[] {
  const remove = async (reference: string): Promise<NetworkSummary> => {
    const removed = await networks.remove(reference);
    emit('destroy', removed.id, { name: removed.name, type: removed.driver });
    return removed;
  };
  const rewire = (container: string, change: NetworkChange): Promise<ContainerRecord> =>
    containers.rewire(container, change);
  /** A container may still be on a network that is gone: with `lenient` the name is taken as it is then. */
  const networkNamed = (reference: string, lenient: boolean): string => {
    try {
      return networks.resolve(reference).name;
    } catch (error) {
      if (lenient && isEngineError(error, 'not-found')) return reference;
      throw error;
    }
  };
  let isPruning = false;

  return [
    // Clients that join the path to an empty name get the list, too.
    ...['/networks', '/networks/'].map((path) =>
      route('GET', path, (x) => {
        const filters = parseFilters(x.query.text('filters')).allow([
          'dangling',
          'driver',
          'id',
          'label',
          'name',
          'scope',
          'type',
        ]);
        for (const type of filters.get('type'))
          if (type !== 'builtin' && type !== 'custom')
            throw invalid(`invalid filter 'type=[${type}]'`, { code: 'INVALID_FILTER' });
        const dangling = filters.flag('dangling');
        const selected = networks
          .list()
          .filter(
            (network) =>
              filters.matchesExactly('driver', network.driver) &&
              filters.matchesPattern('id', network.id) &&
              filters.matchesPattern('name', network.name) &&
              filters.matchesLabels(network.labels) &&
              filters.matchesExactly('scope', 'local') &&
              filters.matchesExactly('type', PREDEFINED.has(network.name) ? 'builtin' : 'custom') &&
              (dangling === undefined || dangling === !PREDEFINED.has(network.name)),
          );
        // Since 1.28 a list tells of no containers.
        const shown = x.atLeast(1, 28) ? [] : containers.list();
        x.sendJson(
          200,
          selected.map((network) => networkView(network, shown)),
        );
      }),
    ),
    route('GET', '/networks/{name...}', (x) => {
      const verbose = x.query.text('verbose') ?? '';
      if (!/^(|1|t|true|0|f|false)$/i.test(verbose))
        throw invalid(`invalid value for verbose: ${verbose}: it is not true or false`, { code: 'INVALID_QUERY' });
      const reference = x.param('name');
      const network = networks.resolve(reference);
      if (!['', 'local'].includes(x.query.text('scope') ?? ''))
        throw notFound(`network ${reference} not found`, { code: 'NO_SUCH_NETWORK' });
      x.sendJson(200, networkView(network, containers.list()));
    }),

    route('POST', '/networks/create', async (x) => {
      const wanted = body.decode(await x.json<unknown>(), '');
      if (wanted.Ingress) throw forbidden('Ingress network can only be global scope network', { code: 'NO_SWARM' });
      if (wanted.Scope !== '' && wanted.Scope !== 'local')
        throw forbidden(`cannot create a ${wanted.Scope} scoped network when swarm is not active`, {
          code: 'NO_SWARM',
        });
      const made = await networks.create({
        name: wanted.Name,
        driver: wanted.Driver || 'bridge',
        internal: wanted.Internal,
        attachable: wanted.Attachable,
        enableIpv4: x.atLeast(1, 48) ? wanted.EnableIPv4 : undefined,
        enableIpv6: wanted.EnableIPv6,
        ipam: { driver: wanted.IPAM?.Driver || 'default', options: wanted.IPAM?.Options ?? null },
        subnets: (wanted.IPAM?.Config ?? []).map(({ Subnet, IPRange, Gateway, AuxiliaryAddresses }) => ({
          subnet: Subnet,
          ipRange: IPRange,
          gateway: Gateway,
          auxiliaryAddresses: AuxiliaryAddresses ?? {},
        })),
        options: wanted.Options ?? {},
        labels: wanted.Labels ?? {},
        configOnly: wanted.ConfigOnly,
        configFrom: wanted.ConfigFrom.Network,
      });
      emit('create', made.id, { name: made.name, type: made.driver });
      x.sendJson(201, { Id: made.id, Warning: '' });
    }),

    route('POST', '/networks/{name...}/connect', async (x) => {
      const { Container, EndpointConfig } = connectBody.decode(await x.json<unknown>(), '');
      const network = networks.resolve(x.param('name')).name;
      await rewire(Container, {
        type: 'connect',
        network,
        request: decodeEndpoint(EndpointConfig ?? {}, 'EndpointConfig'),
      });
      x.sendEmpty(200);
    }),

    route('POST', '/networks/{name...}/disconnect', async (x) => {
      const { Container, Force } = disconnectBody.decode(await x.json<unknown>(), '');
      await rewire(Container, {
        type: 'disconnect',
        network: networkNamed(x.param('name'), Force || !isLive(containers.find(Container))),
      });
      x.sendEmpty(200);
    }),

    route('DELETE', '/networks/{name...}', async (x) => {
      await remove(x.param('name'));
      x.sendEmpty(204);
    }),

    route('POST', '/networks/prune', async (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['label', 'label!', 'until']);
      const until = untilOf(filters, Date.now());
      if (isPruning) throw conflict('a prune operation is already running');
      isPruning = true;
      try {
        const used = new Set(containers.list().flatMap((record) => Object.keys(record.networks)));
        const deleted: string[] = [];
        for (const network of networks.list()) {
          const isWanted =
            filters.matchesLabels(network.labels) &&
            !(filters.has('label!') && filters.matchesLabels(network.labels, 'label!')) &&
            (until === undefined || Date.parse(network.created) <= until);
          if (PREDEFINED.has(network.name) || used.has(network.name) || !isWanted) continue;
          try {
            deleted.push((await remove(network.id)).name);
          } catch (error) {
            // Somebody has begun to use it, or has removed it meanwhile.
            if (!isEngineError(error, 'forbidden') && !isEngineError(error, 'not-found')) throw error;
          }
        }
        emit('prune', '', { reclaimed: '0' });
        x.sendJson(200, { NetworksDeleted: deleted.length > 0 ? deleted : null });
      } finally {
        isPruning = false;
      }
    }),
  ];
}
