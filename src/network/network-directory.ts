/** Knows the existing networks, and finds them by ID and name. */
import { conflict, type EngineError, forbidden, notFound } from '../errors/engine-error.js';
import type { Endpoint, NetworkRequest, NetworkSummary } from '../ports/network.js';

/** Makes the error that says which containers keep a network from being removed. */
export function inUse({ name }: NetworkSummary, endpoints: readonly Endpoint[]): EngineError {
  const names = endpoints.map(
    ({ dnsNames, endpointId }) => `name:${JSON.stringify(dnsNames[0] ?? '')} id:"${endpointId.slice(0, 12)}"`,
  );
  return forbidden(`error while removing network: network ${name} has active endpoints (${names.join(', ')})`, {
    code: 'NETWORK_IN_USE',
  });
}

export class NetworkDirectory {
  /** Summaries by ID, the predefined networks first. */
  readonly #summaries = new Map<string, NetworkSummary>();

  add(summary: NetworkSummary): void {
    this.#summaries.set(summary.id, summary);
  }

  delete(id: string): void {
    this.#summaries.delete(id);
  }

  list(): readonly NetworkSummary[] {
    return [...this.#summaries.values()];
  }

  /**
   * Finds a network by full ID, then name, then ID prefix. @throws EngineError not-found; conflict for a prefix of
   * several.
   */
  resolve(nameOrId: string): NetworkSummary {
    const all = [...this.#summaries.values()];
    const found = this.#summaries.get(nameOrId) ?? all.find(({ name }) => name === nameOrId);
    if (found) return found;
    const matches = nameOrId === '' ? [] : all.filter(({ id }) => id.startsWith(nameOrId));
    if (matches.length > 1)
      throw conflict(`network ${nameOrId} is ambiguous (${matches.length} matches found based on ID prefix)`, {
        code: 'AMBIGUOUS_NETWORK',
      });
    const [first] = matches;
    if (!first) throw notFound(`network ${nameOrId} not found`, { code: 'NO_SUCH_NETWORK' });
    return first;
  }

  /** Checks that a name is free. @throws EngineError conflict when it exists. */
  checkName({ name }: NetworkRequest): void {
    if (this.list().some((network) => network.name === name))
      throw conflict(`network with name ${name} already exists`, { code: 'NETWORK_EXISTS' });
  }

  /**
   * Returns a request with the configuration that it takes over from another network. @throws EngineError not-found;
   * forbidden for a request with a configuration of its own.
   */
  configured(request: NetworkRequest): NetworkRequest {
    const source = this.list().find(
      ({ name, id, configOnly }) => configOnly && (name === request.configFrom || id === request.configFrom),
    );
    if (!source)
      throw notFound(`configuration network "${request.configFrom}" does not exist`, { code: 'NO_SUCH_NETWORK' });
    if (
      request.subnets.length > 0 ||
      Object.keys(request.options).length > 0 ||
      Object.keys(request.labels).length > 0 ||
      request.enableIpv6
    ) {
      throw forbidden(
        'user supplied configurations are not supported if the network depends on a configuration network',
        { code: 'CONFIG_FROM' },
      );
    }
    const { enableIpv4, enableIpv6, ipam, subnets, options, labels } = source;
    return { ...request, enableIpv4, enableIpv6, ipam, subnets, options, labels, configFrom: source.name };
  }
}
