/** Sets how the host treats packets that are not its own. */
import { readFile, writeFile } from 'node:fs/promises';
import type { Family } from './subnet.js';

const SWITCH: Readonly<Record<Family, string>> = {
  4: '/proc/sys/net/ipv4/ip_forward',
  6: '/proc/sys/net/ipv6/conf/all/forwarding',
};

/** Tells whether the host forwards packets of a family. */
export async function isForwarding(family: Family): Promise<boolean> {
  return (await readFile(SWITCH[family], 'utf8')).trim() === '1';
}

/**
 * Switches forwarding on. A host that had it off was not expected to route: so `refuseOthers` is called before the
 * first packet can pass.
 */
export async function enableForwarding(family: Family, refuseOthers?: () => Promise<void>): Promise<void> {
  if (await isForwarding(family)) return;
  await refuseOthers?.();
  await writeFile(SWITCH[family], '1');
}

/** Lets translated connections from the host's loopback addresses pass to a bridge. */
export async function routeLoopback(link: string): Promise<void> {
  await writeFile(`/proc/sys/net/ipv4/conf/${link}/route_localnet`, '1');
}

/**
 * Lets the packet filter see what goes from port to port of a bridge. Returns the families in which the kernel does so.
 */
export async function filterBridged(families: readonly Family[]): Promise<readonly Family[]> {
  const done = await Promise.all(
    families.map((family) =>
      writeFile(`/proc/sys/net/bridge/bridge-nf-call-${family === 4 ? 'iptables' : 'ip6tables'}`, '1').then(
        () => true,
        // Without br_netfilter there is no such file.
        () => false,
      ),
    ),
  );
  return families.filter((_, index) => done[index]);
}
