/** The state of the pool: what keeps the daemon from using it, what to warn of, and the rows for `info`. */
import { readFileSync } from 'node:fs';
import { isEngineError, messageOf, unavailable } from '../../../errors/engine-error.js';
import type { DriverStatus } from '../driver.js';
import type { ZfsHost } from './host.js';
import { pairs, propertiesOf } from './properties.js';

/** With less, hardly anything can be done. */
const LEAST_FREE_BYTES = 64 << 20;

const poolOf = (dataset: string): string => dataset.split('/', 1)[0] ?? '';

/**
 * Returns warnings.
 * @throws EngineError unavailable when the pool cannot be written to, with the remedy.
 */
export async function checkPool(host: ZfsHost, dataset: string): Promise<string[]> {
  const pool = poolOf(dataset);
  const refuse = (what: string, remedy: string): never => {
    throw unavailable(`storage driver zfs: the pool ${pool} ${what}: ${remedy}`, { code: 'ZFS_UNSUPPORTED' });
  };
  const state = await poolProperties(host, pool);
  if (!state) return refuse('is not imported', `zpool import ${pool}, or name another dataset (zfs.fsname)`);
  const health = state.get('health') ?? '';
  if (health !== 'ONLINE' && health !== 'DEGRADED') refuse(`is ${health}`, `see zpool status -v ${pool}`);
  if (state.get('readonly') === 'on')
    refuse('is imported read-only', `zpool export ${pool} and zpool import ${pool} make it writable`);
  const warnings: string[] = [];
  if (health === 'DEGRADED') warnings.push(`the pool ${pool} is DEGRADED: see zpool status -v ${pool}`);
  const available = Number((await propertiesOf(host, dataset, ['available']))?.get('available') ?? LEAST_FREE_BYTES);
  if (available < LEAST_FREE_BYTES)
    warnings.push(
      `${dataset} has ${available} bytes left: remove images or containers, add devices (zpool add ${pool}), or ` +
        'raise quotas above it',
    );
  return warnings;
}

/** Returns the rows for `info`. The first seven are those of other engines. A pool that is gone is told of there. */
export async function statusOf(host: ZfsHost, parent: string): Promise<DriverStatus> {
  try {
    return await rowsOf(host, parent);
  } catch (error) {
    return [
      ['Zpool', poolOf(parent)],
      ['Zpool Health', `not available: ${messageOf(error)}`],
    ];
  }
}

async function rowsOf(host: ZfsHost, parent: string): Promise<DriverStatus> {
  const pool = poolOf(parent);
  const state = await poolProperties(host, pool);
  const names = ['used', 'available', 'quota', 'compression', 'compressratio'];
  const of = (await propertiesOf(host, parent, names)) ?? new Map<string, string>();
  const quota = of.get('quota') ?? '0';
  return [
    ['Zpool', pool],
    ['Zpool Health', state?.get('health') ?? 'not available'],
    ['Parent Dataset', parent],
    ['Space Used By Parent', of.get('used') ?? ''],
    ['Space Available', of.get('available') ?? ''],
    ['Parent Quota', quota === '0' ? 'no' : quota],
    ['Compression', of.get('compression') ?? ''],
    ['Compression Ratio', of.get('compressratio') ?? ''],
    ['Zpool Size', state?.get('size') ?? ''],
    ['Zpool Free', state?.get('free') ?? ''],
    ['ZFS Version', moduleVersion()],
  ];
}

async function poolProperties(host: ZfsHost, pool: string): Promise<Map<string, string> | undefined> {
  try {
    return pairs(await host.zpool('get', '-Hp', '-o', 'property,value', 'health,readonly,size,free', pool));
  } catch (error) {
    if (isEngineError(error) && error.code === 'ZFS_MISSING') return undefined;
    throw error;
  }
}

/** The version of the kernel's module. */
function moduleVersion(): string {
  try {
    return readFileSync('/sys/module/zfs/version', 'utf8').trim();
  } catch {
    return 'unknown';
  }
}
