/** The MAC address of a container: once one for the container, since API 1.44 one of each endpoint. */
import { invalid } from '../../errors/engine-error.js';
import type { EndpointRequest } from '../../actors/container/container.record.js';

type Endpoints = Readonly<Record<string, EndpointRequest>>;

export interface PlacedMacAddress {
  readonly endpoints: Endpoints;
  readonly warnings: readonly string[];
}

/**
 * Gives `Config.MacAddress` to the endpoint that it is meant for: the one of the network mode. Clients before 1.44 knew no
 * other; what they repeat from answers is dropped.
 * @throws EngineError invalid where there is no such endpoint, or where it has another address.
 */
export function placeMacAddress(macAddress: string, networkMode: string, given: Endpoints, isOld: boolean): PlacedMacAddress {
  const endpoints: Endpoints = isOld ? Object.fromEntries(Object.entries(given).map(([name, { MacAddress: _unknown, ...request }]) => [name, request])) : given;
  if (macAddress === '') return { endpoints, warnings: [] };
  const warnings = isOld ? [] : ['The container-wide MacAddress field is now deprecated. It should be specified in EndpointsConfig instead.'];
  if (/^(host|none|container:.*)$/.test(networkMode)) {
    if (isOld) throw invalid('conflicting options: mac-address and the network mode');
    return { endpoints, warnings };
  }
  const name = ['', 'default', 'bridge'].includes(networkMode) ? (['default', 'bridge'].find((key) => endpoints[key]) ?? 'bridge') : networkMode;
  const own = endpoints[name]?.MacAddress;
  if (own && own !== macAddress) throw invalid('the container-wide MAC address must match the endpoint-specific MAC address for the main network, or be left empty');
  return { endpoints: { ...endpoints, [name]: { ...endpoints[name], MacAddress: macAddress } }, warnings };
}
