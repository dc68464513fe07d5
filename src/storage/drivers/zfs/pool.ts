/** The state of the pool: what keeps the daemon from using it, what to warn of, and the rows for `info`. */
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { deadline, isEngineError, messageOf, unavailable } from '../../../errors/engine-error.js';
import type { DriverStatus } from '../driver.js';
import type { ZfsHost } from './host.js';
import { pairs, propertiesOf } from './properties.js';

/** With less, hardly anything can be done. */
const LEAST_FREE_BYTES = 64 << 20;
/** A pool that works answers in milliseconds. */
const ANSWER_MS = 5_000;

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

/**
 * The rows for `info`. A pool that is gone is told of there. The programs wait without end for one that is suspended:
 * then the rows say that, and nothing else is asked until the programs have ended.
 */
export class PoolStatus {
  #asked: Promise<DriverStatus> | undefined;

  constructor(
    private readonly host: ZfsHost,
    private readonly parent: string,
    private readonly answerMs = ANSWER_MS,
  ) {}

  /** Returns the rows, the first seven of which are those of other engines. */
  async rows(): Promise<DriverStatus> {
    this.#asked ??= rowsOf(this.host, this.parent).finally(() => (this.#asked = undefined));
    const timer = new AbortController();
    const late = delay(this.answerMs, undefined, { signal: timer.signal }).then(() => {
      throw deadline(`the pool did not answer within ${this.answerMs / 1000} seconds`);
    });
    try {
      return await Promise.race([this.#asked, late]);
    } catch (error) {
      return [
        ['Zpool', poolOf(this.parent)],
        ['Zpool Health', `not available: ${messageOf(error)}`],
      ];
    } finally {
      timer.abort();
      late.catch(() => undefined);
    }
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
