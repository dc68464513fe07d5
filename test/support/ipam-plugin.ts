/** A driver of addresses: hands them out of pools of its own, one after another, and knows who has which. */
import { PluginServer } from './plugin-server.js';

interface Pool {
  readonly prefix: string;
  readonly length: string;
  next: number;
  readonly taken: Set<string>;
}

export class IpamPluginServer extends PluginServer {
  /** By pool ID: `SUBNET` in use, with the addresses that are given out. */
  readonly pools: ReadonlyMap<string, { readonly taken: ReadonlySet<string> }>;

  constructor(name: string, capabilities: Readonly<Record<string, boolean>> = {}) {
    const pools = new Map<string, Pool>();
    let count = 0;
    const pool = (id: unknown): Pool => {
      const found = pools.get(String(id));
      if (!found) throw new Error(`no pool ${String(id)}`);
      return found;
    };
    super(name, ['IpamDriver'], {
      'IpamDriver.GetCapabilities': () => capabilities,
      'IpamDriver.GetDefaultAddressSpaces': () => ({
        LocalDefaultAddressSpace: 'here',
        GlobalDefaultAddressSpace: 'everywhere',
      }),
      'IpamDriver.RequestPool': ({ AddressSpace, Pool: wanted, V6 }) => {
        const fresh = (): string => (V6 === true ? `fd98:${(++count).toString(16)}::/64` : `10.98.${count++}.0/24`);
        const subnet = typeof wanted === 'string' && wanted !== '' ? wanted : fresh();
        const id = `${String(AddressSpace)}/${subnet}`;
        // A manager that wants its past replayed has forgotten it; this one never forgets.
        if (pools.has(id)) {
          if (capabilities['RequiresRequestReplay']) return { PoolID: id, Pool: subnet, Data: {} };
          throw new Error('pool is in use');
        }
        const [base = '', length = ''] = subnet.split('/');
        pools.set(id, {
          prefix: base.includes(':') ? base : base.replace(/\d+$/, ''),
          length,
          next: 1,
          taken: new Set(),
        });
        return { PoolID: id, Pool: subnet, Data: {} };
      },
      'IpamDriver.ReleasePool': ({ PoolID }) => void (pool(PoolID), pools.delete(String(PoolID))),
      'IpamDriver.RequestAddress': ({ PoolID, Address }) => {
        const from = pool(PoolID);
        const { prefix, length, taken } = from;
        // Every other one, so that nobody takes it for the engine's own choice.
        const address = typeof Address === 'string' && Address !== '' ? Address : `${prefix}${(from.next += 2)}`;
        if (taken.has(address)) throw new Error('address is in use');
        taken.add(address);
        return { Address: `${address}/${length}`, Data: {} };
      },
      'IpamDriver.ReleaseAddress': ({ PoolID, Address }) => {
        if (!pool(PoolID).taken.delete(String(Address))) throw new Error(`address ${String(Address)} is not in use`);
      },
    });
    this.pools = pools;
  }
}
