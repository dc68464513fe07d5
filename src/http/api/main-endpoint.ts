/**
 * Older clients set the MAC address and parameters of `eth0` for the container as a whole; now they belong to an
 * endpoint, which this file finds.
 */
import type { AtLeast } from './at-least.js';
import { invalid } from '../../errors/engine-error.js';
import type { EndpointRequest } from '../../actors/container/container.record.js';
import { ownMember } from '../../text/own-member.js';

export type Endpoints = Readonly<Record<string, EndpointRequest>>;

export interface Placed {
  readonly endpoints: Endpoints;
  readonly warnings: readonly string[];
}

const SYSCTLS = 'com.docker.network.endpoint.sysctls';

/** Returns the network that a mode names: `default` and no mode mean the default bridge. */
export function networkOfMode(mode: string): string {
  return mode === '' || mode === 'default' ? 'bridge' : mode;
}

/**
 * Returns endpoints under the names of networks. The endpoint of `default` becomes that of the default bridge if the
 * container is on it.
 */
export function withDefaultNamed(mode: string, { default: unnamed, ...named }: Endpoints): Endpoints {
  return unnamed === undefined || mode !== 'bridge' ? named : { ...named, bridge: unnamed };
}

/**
 * Gives `Config.MacAddress` to the endpoint that it is meant for: the one of the network mode. Clients before 1.44 knew
 * no other place for it; a value that they repeat from answers is dropped.
 * @param mode names a network, or is `host`, `none` or `container:…`.
 * @throws EngineError invalid where there is no such endpoint, or where it has another address.
 */
export function placeMacAddress(macAddress: string, mode: string, given: Endpoints, atLeast: AtLeast): Placed {
  const isOld = !atLeast(1, 44);
  if (macAddress === '') {
    return {
      endpoints: isOld
        ? Object.fromEntries(
            Object.entries(given).map(([name, { MacAddress: _unknown, ...request }]) => [name, request]),
          )
        : given,
      warnings: [],
    };
  }
  const warnings = isOld
    ? []
    : ['The container-wide MacAddress field is now deprecated. It should be specified in EndpointsConfig instead.'];
  if (/^(host|none|container:.*)$/.test(mode)) {
    if (isOld) throw invalid('conflicting options: mac-address and the network mode');
    return { endpoints: given, warnings };
  }
  const name = mainEndpoint(mode, given, isOld, 'unable to migrate container-wide MAC address to a specific network: ');
  const own = isOld ? undefined : ownMember(given, name)?.MacAddress;
  if (own && own !== macAddress)
    throw invalid(
      'the container-wide MAC address must match the endpoint-specific MAC address for the main network, ' +
        'or be left empty',
    );
  return { endpoints: { ...given, [name]: { ...ownMember(given, name), MacAddress: macAddress } }, warnings };
}

/**
 * Moves parameters of `eth0` (`net.ipv4.conf.eth0.forwarding`), which can be set only when there is such a link. Up to
 * 1.47 they become options of the endpoint of the network mode, whatever its link is called.
 * @throws EngineError invalid since 1.48, and for parameters of another link.
 */
export function placeSysctls(
  sysctls: Readonly<Record<string, string>>,
  mode: string,
  given: Endpoints,
  atLeast: AtLeast,
): Placed & { readonly sysctls: Readonly<Record<string, string>> } {
  const isOfLink = (name: string): boolean => /^net\.[^.]*\.[^.]*\.eth[^.]*\./.test(name);
  const moved = Object.entries(sysctls).filter(([name]) => isOfLink(name));
  const [[first] = []] = moved;
  if (first === undefined || mode === 'host' || mode.startsWith('container:'))
    return { sysctls, endpoints: given, warnings: [] };
  if (atLeast(1, 48))
    throw invalid(
      `interface specific sysctl setting ${JSON.stringify(first)} must be supplied using driver option '${SYSCTLS}'`,
    );
  const name = mainEndpoint(mode, given, !atLeast(1, 44), `unable to find a network for sysctl ${first}: `);
  const entries = moved.map(([key, value]) => {
    const [, family, directory, link, ...rest] = key.split('.');
    if (link !== 'eth0')
      throw invalid(
        `unable to determine network endpoint for sysctl ${key}, ` +
          `use driver option '${SYSCTLS}' to set per-interface sysctls`,
      );
    return `net.${family}.${directory}.IFNAME.${rest.join('.')}=${value}`;
  });
  const request = ownMember(given, name) ?? {};
  // The last value counts, so the endpoint's own one wins.
  const own = ownMember(request.DriverOpts, SYSCTLS);
  const DriverOpts = { ...request.DriverOpts, [SYSCTLS]: [...entries, ...(own === undefined ? [] : [own])].join(',') };
  return {
    sysctls: Object.fromEntries(Object.entries(sysctls).filter(([key]) => !isOfLink(key))),
    endpoints: { ...given, [name]: { ...request, DriverOpts } },
    warnings: [
      `Migrated sysctl "${moved.map(([key]) => key).join(',')}" to DriverOpts{"${SYSCTLS}":"${entries.join(',')}"}.`,
    ],
  };
}

/** Returns the key of the endpoint of the network mode. Old clients sent one at most, under any name of the network. */
function mainEndpoint(mode: string, endpoints: Endpoints, isOld: boolean, context: string): string {
  const [only] = Object.keys(endpoints);
  if (only === undefined || Object.hasOwn(endpoints, mode)) return mode;
  if (isOld) return only;
  throw invalid(`${context}HostConfig.NetworkMode must match the identity of a network in NetworkSettings.Networks`);
}
