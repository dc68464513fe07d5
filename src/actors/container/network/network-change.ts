/**
 * Connecting containers to networks and disconnecting them: what may be asked for, and what it makes of the record.
 * Pure.
 */
import { addressFamily } from '../../../sys/net/ip-address.js';
import { type EngineError, forbidden, internal, invalid, isEngineError } from '../../../errors/engine-error.js';
import { endpointOptionProblems, wantedLinkName } from '../../../network/endpoint-options.js';
import { contains, parseSubnet } from '../../../network/subnet.js';
import type { NetworkSummary } from '../../../ports/network.js';
import type { ContainerRecord, EndpointRequest } from '../container.record.js';
import { checkOneLine } from '../../../runtime/one-line.js';
import { parseMacAddress } from '../../../text/mac-address.js';

/** Nobody but the neighbours on a link uses these addresses (RFC 3927 and RFC 4291). */
const LINK_LOCAL = ['169.254.0.0/16', 'fe80::/10'].map((subnet) => parseSubnet(subnet, 'subnet'));

/** A change of one network; `network` is its name. */
export type NetworkChange =
  | { readonly type: 'connect'; readonly network: string; readonly request: EndpointRequest }
  | { readonly type: 'disconnect'; readonly network: string };

/**
 * Checks what a client asks of an endpoint of a container that is connected.
 * @throws EngineError invalid naming everything that the network cannot give, not just the first.
 */
export function checkEndpoint(network: NetworkSummary, request: EndpointRequest): void {
  const { misplaced, malformed } = endpointProblems(network, request);
  const problems = [...misplaced, ...malformed];
  if (problems.length > 0) {
    const isPlain = problems.length === 1 && misplaced.length > 0;
    throw invalid(isPlain ? problems.join() : invalidSettings(problems), { code: 'ENDPOINT' });
  }
  checkMacAddress(request);
}

/**
 * Checks what a client asks of an endpoint of a container that is created. The words are those of the known engine,
 * which already looks here whether the network has the wanted addresses.
 * @throws EngineError invalid, as `checkEndpoint`.
 */
export function checkNewEndpoint(network: NetworkSummary, request: EndpointRequest): void {
  checkWithin(network.name, request, () => {
    const { misplaced, malformed } = endpointProblems(network, request);
    return [...misplaced, ...malformed, ...unconfigured(network, request), ...outsideAddresses(network, request)];
  });
}

/**
 * Checks what a client asks of the network of another container, which has its addresses and names already.
 * @param mode such as `container:web`, as the client has written it. @throws EngineError invalid, as `checkEndpoint`.
 */
export function checkSharedEndpoint(mode: string, request: EndpointRequest): void {
  checkWithin(mode, request, () => {
    const { misplaced, malformed } = endpointProblems({ hasNames: false }, request);
    return [...misplaced, ...malformed];
  });
}

function checkWithin(name: string, request: EndpointRequest, problemsOf: () => readonly string[]): void {
  try {
    const problems = problemsOf();
    if (problems.length > 0) throw invalid(invalidSettings(problems), { code: 'ENDPOINT' });
    checkMacAddress(request);
  } catch (error) {
    if (!isEngineError(error, 'invalid')) throw error;
    throw invalid(`invalid config for network ${name}: ${error.message}`, { cause: error });
  }
}

function endpointProblems(
  { hasNames }: Pick<NetworkSummary, 'hasNames'>,
  { IPAMConfig, Aliases, Links, DriverOpts }: EndpointRequest,
): { readonly misplaced: readonly string[]; readonly malformed: readonly string[] } {
  checkOneLine('Aliases', Aliases);
  checkOneLine('Links', Links);
  const { IPv4Address = '', IPv6Address = '', LinkLocalIPs = [] } = IPAMConfig ?? {};
  const misplaced: string[] = [];
  if (!hasNames) {
    if (IPv4Address || IPv6Address)
      misplaced.push('user specified IP address is supported on user defined networks only');
    if (Aliases?.length)
      misplaced.push('network-scoped alias is supported only for containers in user defined networks');
  }
  const malformed: string[] = [];
  if (IPv4Address && (addressFamily(IPv4Address) !== 4 || IPv4Address === '0.0.0.0'))
    malformed.push(`invalid IPv4 address: ${IPv4Address}`);
  if (IPv6Address && (addressFamily(IPv6Address) !== 6 || /^[0:]*$/.test(IPv6Address)))
    malformed.push(`invalid IPv6 address: ${IPv6Address}`);
  for (const address of LinkLocalIPs)
    if (!isLinkLocal(address)) malformed.push(`invalid link-local IP address: ${address}`);
  malformed.push(...endpointOptionProblems(DriverOpts ?? {}));
  return { misplaced, malformed };
}

function isLinkLocal(address: string): boolean {
  return addressFamily(address) !== 0 && LINK_LOCAL.some((subnet) => contains(subnet, address));
}

/** A network that the engine made has no subnet that a user could have chosen an address of. */
function unconfigured({ hasNames }: NetworkSummary, { IPAMConfig }: EndpointRequest): string[] {
  const isWanted = Boolean(IPAMConfig?.IPv4Address || IPAMConfig?.IPv6Address);
  return hasNames || !isWanted
    ? []
    : ['user specified IP address is supported only when connecting to networks with user configured subnets'];
}

/** Returns a problem for each wanted address that is in none of the network's subnets; a plugin has its own rules. */
function outsideAddresses({ hasNames, ipam, subnets }: NetworkSummary, { IPAMConfig }: EndpointRequest): string[] {
  if (!hasNames || ipam.driver !== 'default' || subnets.length === 0) return [];
  const within = subnets.map(({ subnet }) => parseSubnet(subnet, 'subnet'));
  return [IPAMConfig?.IPv4Address ?? '', IPAMConfig?.IPv6Address ?? '']
    .filter(
      (address) =>
        address !== '' && !within.some((subnet) => addressFamily(address) !== 0 && contains(subnet, address)),
    )
    .map((address) => `no configured subnet or ip-range contain the IP address ${address}`);
}

function invalidSettings(problems: readonly string[]): string {
  return `invalid endpoint settings:\n${problems.length === 1 ? problems.join() : `* ${problems.join('\n* ')}`}`;
}

function checkMacAddress({ MacAddress }: EndpointRequest): void {
  if (MacAddress && parseMacAddress(MacAddress) === undefined)
    throw invalid(`invalid MAC address ${MacAddress}`, { code: 'MAC_ADDRESS' });
}

/** Checks the names of links. @throws EngineError invalid where two endpoints of a container ask for the same one. */
export function checkLinkNames(requests: readonly EndpointRequest[]): void {
  const names = requests.flatMap(({ DriverOpts }) => wantedLinkName(DriverOpts ?? {}) ?? []);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined)
    throw invalid(`invalid endpoint settings:\nseveral endpoints ask for the interface name '${twice}'`, {
      code: 'INTERFACE_NAME',
    });
}

/** Returns the networks without those that a container was just joining or leaving when the daemon died. */
export function withoutPending(networks: ContainerRecord['networks']): ContainerRecord['networks'] {
  const entries = Object.entries(networks);
  const settled = entries.filter(([, { pending }]) => pending === undefined);
  return settled.length === entries.length ? networks : Object.fromEntries(settled);
}

/** Returns true while there is a sandbox to change: a container that waits for its next start has none. */
export function isLive({ state }: ContainerRecord): boolean {
  return state.status === 'running' || state.status === 'paused';
}

/**
 * Checks a change against the container as it is, in the order and the words of the known engine.
 * @throws EngineError not-found, invalid, forbidden for an endpoint that exists, internal for one that does not.
 */
export function checkChange(
  record: ContainerRecord,
  change: NetworkChange,
  resolve: (name: string) => NetworkSummary,
): void {
  const mode = record.hostConfig.NetworkMode;
  const isConnected = Object.hasOwn(record.networks, change.network);
  if (change.type === 'disconnect') {
    if (isLive(record) && mode === 'host' && change.network === 'host')
      throw hostNetworkRefused(
        'cannot disconnect container from host network - container was created in host network mode',
      );
    if (!isConnected)
      throw internal(`container ${record.id} is not connected to network ${change.network}`, {
        code: 'NOT_CONNECTED',
      });
    return;
  }
  if (mode.startsWith('container:')) throw sharedNamespaceRefused();
  checkEndpoint(resolve(change.network), change.request);
  checkLinkNames([
    ...Object.entries(record.networks).flatMap(([name, { request }]) => (name === change.network ? [] : [request])),
    change.request,
  ]);
  const others = Object.keys(record.networks).filter((name) => name !== change.network);
  checkBeside(mode, change.network, others);
  if (isConnected && isLive(record))
    throw forbidden(`endpoint with name ${record.name.slice(1)} already exists in network ${change.network}`, {
      code: 'ENDPOINT_EXISTS',
    });
}

/** Throws invalid when a container in this network mode cannot have a network beside the others. */
export function checkBeside(mode: string, network: string, others: readonly string[]): void {
  if (mode !== 'host' && network === 'host')
    throw hostNetworkRefused(
      'cannot connect container to host network - container must be created in host network mode',
    );
  // The host's network need not be among the others: a container that does not run can leave it.
  if (mode === 'host' && network !== 'host') throw sharedNamespaceRefused();
  if (others.includes('none') || (others.length > 0 && network === 'none')) {
    throw invalid(
      'container cannot be connected to multiple networks with one of the networks in private (none) mode',
      { code: 'NONE_NETWORK' },
    );
  }
}

/** Returns the changed record of a container that does not run. */
export function withChange(record: ContainerRecord, change: NetworkChange): ContainerRecord {
  if (change.type === 'connect')
    return { ...record, networks: { ...record.networks, [change.network]: { request: change.request } } };
  const { [change.network]: _gone, ...networks } = record.networks;
  return { ...record, networks };
}

function hostNetworkRefused(message: string): EngineError {
  return invalid(message, { code: 'HOST_NETWORK' });
}

function sharedNamespaceRefused(): EngineError {
  return invalid(
    'container sharing network namespace with another container or host cannot be connected to any other network',
    { code: 'SHARED_NETWORK' },
  );
}
