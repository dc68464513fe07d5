/** The kernel and its namespaces. */
import { readdir, readFile } from 'node:fs/promises';
import { release } from 'node:os';
import type { HostFacts } from '../runtime/host-facts.js';
import { whyNotShown } from '../sys/mount/shown-owners.js';
import { isAtLeast, type Version } from '../text/version.js';
import { type Row, row } from './row.js';

/** The oldest line of the kernel that its developers still mend. */
const OLDEST_KEPT: Version = [5, 10];
/** Any user but root: mounts are tried with it. */
const ANY_IDS = [{ containerId: 0, hostId: 65_536, count: 1 }];
/** Containers have one of each. */
const NEEDED_NAMESPACES = ['mnt', 'pid', 'net', 'ipc', 'uts'];

/** @param directory is where the data would be: file systems differ. */
export async function kernelRows({ kernel }: HostFacts, directory: string): Promise<Row[]> {
  const isKept = isAtLeast(kernel, OLDEST_KEPT);
  return [
    row(
      'kernel',
      isKept ? 'ok' : 'warning',
      isKept
        ? `Linux ${release()}`
        : `Linux ${release()} gets no corrections any more, unless a distributor makes them`,
    ),
    await namespaces(),
    await userNamespaces(),
    await idmappedMounts(directory),
    process.getuid?.() === 0
      ? row('user', 'ok', 'root')
      : row('user', 'failure', 'the daemon needs root; rows that only root can find out may be wrong'),
  ];
}

async function namespaces(): Promise<Row> {
  const found = await readdir('/proc/self/ns');
  const kinds = found.filter((name) => !name.endsWith('_for_children'));
  const missing = NEEDED_NAMESPACES.filter((kind) => !kinds.includes(kind));
  return missing.length === 0
    ? row('namespaces', 'ok', kinds.join(', '))
    : row('namespaces', 'failure', `this kernel has no namespaces of the kinds ${missing.join(', ')}`);
}

/** Reads what limits user namespaces: without any, users of containers cannot be remapped. */
async function userNamespaces(): Promise<Row> {
  const [isThere, most, map] = await Promise.all([
    readdir('/proc/self/ns').then((kinds) => kinds.includes('user')),
    readFile('/proc/sys/user/max_user_namespaces', 'utf8').catch(() => ''),
    readFile('/proc/self/uid_map', 'utf8').catch(() => ''),
  ]);
  const name = 'user namespaces';
  if (!isThere) return row(name, 'note', 'none in this kernel: userns-remap is not possible');
  if (most.trim() === '0') return row(name, 'note', 'user.max_user_namespaces is 0: userns-remap is not possible');
  const isInitial = map.trim().split(/\s+/).join(' ') === '0 0 4294967295';
  return isInitial
    ? row(name, 'ok', `up to ${most.trim()}; this is the initial one`)
    : row(name, 'note', `up to ${most.trim()}; this is not the initial one: limits and devices may be refused`);
}

/** Without them remapped users have their data apart, and no container has users of its own. */
async function idmappedMounts(directory: string): Promise<Row> {
  const name = 'idmapped mounts';
  if (process.getuid?.() !== 0) return row(name, 'note', 'only root can try them');
  const reason = await whyNotShown(directory, { uids: ANY_IDS, gids: ANY_IDS });
  return reason === undefined
    ? row(name, 'ok', `in this kernel, with overlayfs, and on the file system of ${directory}`)
    : row(name, 'note', reason);
}
