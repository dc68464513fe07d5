/** The programs that can write the firewall's rules, and which one does. */
import { isOnPath } from '../sys/process/on-path.js';
import type { FirewallBackend } from './firewall-backend.js';
import { IptablesBackend } from './iptables-backend.js';
import { NftablesBackend } from './nftables-backend.js';

const BACKENDS = { iptables: IptablesBackend, nftables: NftablesBackend } as const;

export type BackendName = keyof typeof BACKENDS;

/** Returns the wanted backend; for '' iptables, or nftables on a host that has only that. */
export function chosenBackend(wanted: BackendName | ''): BackendName {
  if (wanted !== '') return wanted;
  return !isOnPath('iptables') && isOnPath('nft') ? 'nftables' : 'iptables';
}

/** Makes the backends whose programs are there, other than `chosen`. */
export function otherBackends(chosen: BackendName, tag: string): FirewallBackend[] {
  return (['iptables', 'nftables'] as const)
    .filter((name) => name !== chosen && isOnPath(name === 'iptables' ? 'iptables' : 'nft'))
    .map((name) => makeBackend(name, tag));
}

/** Makes a backend. `tag`: part of the names of chains or tables that belongs to the daemon, at most 15 characters. */
export function makeBackend(name: BackendName, tag: string): FirewallBackend {
  return new BACKENDS[name](tag);
}
