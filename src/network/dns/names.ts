/** Knows the names of endpoints on each network. */
import type { Endpoint } from '../../ports/network.js';
import { addressBytes, addressText } from '../../sys/net/ip-address.js';
import { encodeName, TYPE, type Answer } from './message.js';

/** The networks of a client, in order. */
type View = ReadonlyMap<string, { readonly endpoint: Pick<Endpoint, 'networkId' | 'networkName' | 'links'> }>;

interface Host {
  readonly endpointId: string;
  /** Its addresses as DNS answers. */
  readonly records: readonly Answer[];
}

export class Names {
  /** Hosts by network ID, then by name. */
  readonly #byName = new Map<string, Map<string, Host[]>>();
  /** Endpoints by network ID, then by address. */
  readonly #byAddress = new Map<string, Map<string, Endpoint>>();

  add(endpoint: Endpoint): void {
    const names = this.#byName.get(endpoint.networkId) ?? new Map<string, Host[]>();
    this.#byName.set(endpoint.networkId, names);
    const host = { endpointId: endpoint.endpointId, records: recordsOf(endpoint) };
    for (const name of namesOf(endpoint)) names.set(name, [...(names.get(name) ?? []), host]);
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
    for (const address of [endpoint.ipv4, endpoint.ipv6])
      if (addresses?.get(address)?.endpointId === endpoint.endpointId) addresses.delete(address);
    if (names?.size === 0) this.#byName.delete(endpoint.networkId);
    if (addresses?.size === 0) this.#byAddress.delete(endpoint.networkId);
  }

  /** Returns the answers to a question; undefined when the name is none of ours, empty when it has no such record. */
  answer(view: View, name: string, type: number): Answer[] | undefined {
    const address = addressOfPointer(name);
    if (address !== undefined) return this.#pointer(view, address, type);
    const hosts = this.#find(view, name);
    if (!hosts) return undefined;
    const answers: Answer[] = [];
    for (const { records } of hosts)
      for (const record of records) if (type === record.type || type === TYPE.any) answers.push(record);
    return shuffle(answers);
  }

  #find(view: View, name: string): readonly Host[] | undefined {
    for (const { endpoint } of view.values()) {
      const { networkId, links } = endpoint;
      const own = Object.hasOwn(links, name) ? links[name] : undefined;
      const found = this.#byName.get(networkId)?.get(own?.toLowerCase() ?? name);
      if (found) return found;
    }
    // A name such as `web.backend` names its network, too.
    for (const { endpoint } of view.values()) {
      const suffix = `.${endpoint.networkName.toLowerCase()}`;
      const found = name.endsWith(suffix)
        ? this.#byName.get(endpoint.networkId)?.get(name.slice(0, -suffix.length))
        : undefined;
      if (found) return found;
    }
    return undefined;
  }

  #pointer(view: View, address: string, type: number): Answer[] | undefined {
    for (const { endpoint: own } of view.values()) {
      const endpoint = this.#byAddress.get(own.networkId)?.get(address);
      if (!endpoint) continue;
      const [first] = namesOf(endpoint);
      return first === undefined || (type !== TYPE.ptr && type !== TYPE.any)
        ? []
        : [{ type: TYPE.ptr, data: encodeName(`${first}.${own.networkName}`) }];
    }
    return undefined;
  }
}

function recordsOf({ ipv4, ipv6 }: Endpoint): Answer[] {
  return [
    ...(ipv4 === '' ? [] : [{ type: TYPE.a, data: addressBytes(ipv4) }]),
    ...(ipv6 === '' ? [] : [{ type: TYPE.aaaa, data: addressBytes(ipv6) }]),
  ];
}

function namesOf({ dnsNames, aliases }: Endpoint): Set<string> {
  return new Set([...dnsNames, ...aliases].map((name) => name.toLowerCase()));
}

/** Returns the address that a name below in-addr.arpa or ip6.arpa stands for; undefined for other names. */
function addressOfPointer(name: string): string | undefined {
  if (!name.endsWith('.arpa')) return undefined;
  const four = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.in-addr\.arpa$/.exec(name);
  if (four) return four.slice(1).toReversed().join('.');
  if (!/^([0-9a-f]\.){32}ip6\.arpa$/.test(name)) return undefined;
  const digits = name.slice(0, 64).split('.').filter(Boolean).toReversed().join('');
  return addressText(Buffer.from(digits, 'hex'));
}

/** Shuffles answers: clients take the first, and each container of a name shall have its share. */
function shuffle<T>(list: T[]): T[] {
  for (let last = list.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [list[last], list[other]] = [list[other] as T, list[last] as T];
  }
  return list;
}
