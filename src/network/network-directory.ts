/** The networks that there are: found by ID and name. */
import { conflict, forbidden, notFound } from '../errors/engine-error.js';
import type { NetworkRequest, NetworkSummary } from '../ports/network.js';

export class NetworkDirectory {
  /** By ID: the predefined ones first. */
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

  /** Full ID, then name, then ID prefix. @throws EngineError not-found, conflict for a prefix of several. */
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

  /** @throws EngineError conflict for a name that exists. */
  checkName({ name }: NetworkRequest): void {
    if (this.list().some((network) => network.name === name))
      throw conflict(`network with name ${name} already exists`, { code: 'NETWORK_EXISTS' });
  }

  /**
   * A request with the configuration that it takes over from another network. @throws EngineError not-found, forbidden
   * for one with its own.
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
