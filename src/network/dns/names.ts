/** Names of endpoints, by network. */
import type { Endpoint } from '../../ports/network.js';
import { addressBytes, addressText } from '../../sys/ip-address.js';
import { encodeName, TYPE, type Answer } from './message.js';

/** The networks that a client is on, in order, and what it calls others there: alias to name. */
type View = readonly { readonly id: string; readonly name: string; readonly links: Readonly<Record<string, string>> }[];

export class Names {
  /** Endpoints by network ID and name. */
  readonly #byName = new Map<string, Map<string, Endpoint[]>>();
  /** By network ID and address. */
  readonly #byAddress = new Map<string, Map<string, Endpoint>>();

  add(endpoint: Endpoint): void {
    const names = this.#byName.get(endpoint.networkId) ?? new Map<string, Endpoint[]>();
    this.#byName.set(endpoint.networkId, names);
    for (const name of namesOf(endpoint)) names.set(name, [...(names.get(name) ?? []), endpoint]);
    const addresses = this.#byAddress.get(endpoint.networkId) ?? new Map<string, Endpoint>();
    this.#byAddress.set(endpoint.networkId, addresses);
    for (const address of [endpoint.ipv4, endpoint.ipv6]) if (address !== '') addresses.set(address, endpoint);
  }

  remove(endpoint: Endpoint): void {
    const names = this.#byName.get(endpoint.networkId);
    for (const name of namesOf(endpoint)) {
      const left = names?.get(name)?.filter(({ endpointId }) => endpointId !== endpoint.endpointId) ?? [];
      if (left.length > 0) names?.set(name, left);
      else names?.delete(name);
    }
    const addresses = this.#byAddress.get(endpoint.networkId);
    for (const address of [endpoint.ipv4, endpoint.ipv6]) if (addresses?.get(address)?.endpointId === endpoint.endpointId) addresses.delete(address);
    if (names?.size === 0) this.#byName.delete(endpoint.networkId);
    if (addresses?.size === 0) this.#byAddress.delete(endpoint.networkId);
  }

  /** Answers to a question; undefined when the name is none of ours, empty when it has no such record. */
  answer(view: View, name: string, type: number): Answer[] | undefined {
    const address = addressOfPointer(name);
    if (address !== undefined) return this.#pointer(view, address, type);
    const endpoints = this.#find(view, name);
    if (!endpoints) return undefined;
    const answers = endpoints.flatMap(({ ipv4, ipv6 }) => [
      ...((type === TYPE.a || type === TYPE.any) && ipv4 !== '' ? [{ type: TYPE.a, data: addressBytes(ipv4) }] : []),
      ...((type === TYPE.aaaa || type === TYPE.any) && ipv6 !== '' ? [{ type: TYPE.aaaa, data: addressBytes(ipv6) }] : []),
    ]);
    return shuffled(answers);
  }

  #find(view: View, name: string): readonly Endpoint[] | undefined {
    for (const { id, links } of view) {
      const own = Object.hasOwn(links, name) ? links[name] : undefined;
      const found = this.#byName.get(id)?.get(own?.toLowerCase() ?? name);
      if (found) return found;
    }
    // `web.backend`: the name on a network that is said.
    for (const { id, name: network } of view) {
      const suffix = `.${network.toLowerCase()}`;
      const found = name.endsWith(suffix) ? this.#byName.get(id)?.get(name.slice(0, -suffix.length)) : undefined;
      if (found) return found;
    }
    return undefined;
  }

  #pointer(view: View, address: string, type: number): Answer[] | undefined {
    for (const { id, name } of view) {
      const endpoint = this.#byAddress.get(id)?.get(address);
      if (!endpoint) continue;
      const [first] = namesOf(endpoint);
      return first === undefined || (type !== TYPE.ptr && type !== TYPE.any) ? [] : [{ type: TYPE.ptr, data: encodeName(`${first}.${name}`) }];
    }
    return undefined;
  }
}

function namesOf({ dnsNames, aliases }: Endpoint): Set<string> {
  return new Set([...dnsNames, ...aliases].map((name) => name.toLowerCase()));
}

/** The address that a name below in-addr.arpa or ip6.arpa is about; undefined for other names. */
function addressOfPointer(name: string): string | undefined {
  const four = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.in-addr\.arpa$/.exec(name);
  if (four) return four.slice(1).toReversed().join('.');
  if (!/^([0-9a-f]\.){32}ip6\.arpa$/.test(name)) return undefined;
  const digits = name.slice(0, 64).split('.').filter(Boolean).toReversed().join('');
  return addressText(Buffer.from(digits, 'hex'));
}

/** Clients take the first: each container of a name shall have its share. */
function shuffled<T>(list: readonly T[]): T[] {
  const result = [...list];
  for (let last = result.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [result[last], result[other]] = [result[other] as T, result[last] as T];
  }
  return result;
}
