/** Networks as the Engine API shows them. */
import type { ContainerDirectory } from '../../actors/container/directory.js';
import { isLive } from '../../actors/container/network/network-change.js';
import { conflict, forbidden, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import type { WantedNetwork, NetworkSummary } from '../../ports/network.js';
import { decodeEndpoint } from '../api/container-create.js';
import { anything, boolean, dictionary, ignored, list, nullable, object, optional, string } from '../api/decode.js';
import { type Filters, parseFilters } from '../api/filters.js';
import { networkView } from '../api/network-view.js';
import { untilOf } from '../api/until.js';
import type { Exchange } from '../exchange.js';
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

export function networkRoutes(deps: NetworkRouteDeps): Route[] {
  const { networks, containers, emit } = deps;
  let isPruning = false;

  return [
    // Clients that join the path to an empty name get the list, too.
    ...['/networks', '/networks/'].map((path) => route('GET', path, (x) => listNetworks(x, deps))),
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
      const made = await networks.create(wantedNetwork(wanted, x.atLeast(1, 48)));
      emit('create', made.id, { name: made.name, type: made.driver });
      x.sendJson(201, { Id: made.id, Warning: '' });
    }),

    route('POST', '/networks/{name...}/connect', async (x) => {
      const { Container, EndpointConfig } = connectBody.decode(await x.json<unknown>(), '');
      const network = networks.resolve(x.param('name')).name;
      await containers.rewire(Container, {
        type: 'connect',
        network,
        request: decodeEndpoint(EndpointConfig ?? {}, 'EndpointConfig'),
      });
      x.sendEmpty(200);
    }),

    route('POST', '/networks/{name...}/disconnect', async (x) => {
      const { Container, Force } = disconnectBody.decode(await x.json<unknown>(), '');
      await containers.rewire(Container, {
        type: 'disconnect',
        network: networkNamed(deps, x.param('name'), Force || !isLive(containers.find(Container))),
      });
      x.sendEmpty(200);
    }),

    route('DELETE', '/networks/{name...}', async (x) => {
      await remove(deps, x.param('name'));
      x.sendEmpty(204);
    }),

    route('POST', '/networks/prune', async (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['label', 'label!', 'until']);
      const until = untilOf(filters, Date.now());
      if (isPruning) throw conflict('a prune operation is already running');
      isPruning = true;
      try {
        const isWanted = (network: NetworkSummary): boolean =>
          filters.matchesLabels(network.labels) &&
          !(filters.has('label!') && filters.matchesLabels(network.labels, 'label!')) &&
          (until === undefined || Date.parse(network.created) <= until);
        const deleted = await prune(deps, isWanted);
        emit('prune', '', { reclaimed: '0' });
        x.sendJson(200, { NetworksDeleted: deleted.length > 0 ? deleted : null });
      } finally {
        isPruning = false;
      }
    }),
  ];
}

/** Unlike other lists, that of networks takes this filter without a value, and refuses two that mean the same. */
function danglingOf(filters: Filters): boolean | undefined {
  const [value, other] = new Set(filters.get('dangling'));
  if (value === undefined) return undefined;
  if (other !== undefined)
    throw invalid('got more than one value for filter key "dangling"', { code: 'INVALID_FILTER' });
  if (['1', 'true'].includes(value)) return true;
  if (['0', 'false'].includes(value)) return false;
  throw invalid(`invalid value for filter 'dangling', must be "true" (or "1"), or "false" (or "0")`, {
    code: 'INVALID_FILTER',
  });
}

function listNetworks(x: Exchange, { networks, containers }: NetworkRouteDeps): void {
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
      throw invalid(`invalid filter: 'type'='${type}'`, { code: 'INVALID_FILTER' });
  const dangling = danglingOf(filters);
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
}

/**
 * Returns the name of a network. A container may still be on a network that is gone: with `lenient` the given name is
 * returned then.
 */
function networkNamed({ networks }: NetworkRouteDeps, reference: string, lenient: boolean): string {
  try {
    return networks.resolve(reference).name;
  } catch (error) {
    if (lenient && isEngineError(error, 'not-found')) return reference;
    throw error;
  }
}

/**
 * Decodes the network that a client wants.
 * @param hasIpv4Switch whether the client's version of the API knows `EnableIPv4`.
 */
function wantedNetwork(wanted: ReturnType<typeof body.decode>, hasIpv4Switch: boolean): WantedNetwork {
  return {
    name: wanted.Name,
    driver: wanted.Driver || 'bridge',
    internal: wanted.Internal,
    attachable: wanted.Attachable,
    enableIpv4: hasIpv4Switch ? wanted.EnableIPv4 : undefined,
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
  };
}

async function remove({ networks, emit }: NetworkRouteDeps, reference: string): Promise<NetworkSummary> {
  const removed = await networks.remove(reference);
  emit('destroy', removed.id, { name: removed.name, type: removed.driver });
  return removed;
}

/** Removes the networks that no container is on. Returns their names. */
async function prune(
  deps: NetworkRouteDeps,
  isWanted: (network: NetworkSummary) => boolean,
): Promise<readonly string[]> {
  const used = new Set(deps.containers.list().flatMap((record) => Object.keys(record.networks)));
  const deleted: string[] = [];
  for (const network of deps.networks.list()) {
    if (PREDEFINED.has(network.name) || used.has(network.name) || !isWanted(network)) continue;
    try {
      deleted.push((await remove(deps, network.id)).name);
    } catch (error) {
      // Somebody has begun to use the network, or has removed it meanwhile.
      if (!isEngineError(error, 'forbidden') && !isEngineError(error, 'not-found')) throw error;
    }
  }
  return deleted;
}
