/**
 * Sets the share of real-time processes in the parent cgroup of all containers (options `cpu-rt-period` and
 * `-runtime`).
 */
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';

export interface RealtimeShare {
  /** 0 leaves the kernel's value. */
  readonly cpuRtPeriodMicroseconds: number;
  readonly cpuRtRuntimeMicroseconds: number;
}

/**
 * Gives each cgroup on the way to `parent` the share, from the root down: the kernel grants no child more than its
 * parent has, and new groups have none. cgroup v1 only.
 * @param parent absolute path inside the hierarchy.
 * @throws EngineError invalid when the kernel refuses the share; no cgroup is made then.
 */
export async function shareRealtime(
  parent: string,
  { cpuRtPeriodMicroseconds, cpuRtRuntimeMicroseconds }: RealtimeShare,
): Promise<void> {
  const root = parseCgroupMounts(await readFile('/proc/self/mountinfo', 'utf8')).controllers.get('cpu');
  if (root === undefined) throw invalid('cpu-rt-runtime: the cpu controller of cgroup v1 is not mounted');
  const made: string[] = [];
  try {
    let dir = root;
    for (const part of parent.split('/').filter(Boolean)) {
      dir = join(dir, part);
      if ((await mkdir(dir, { recursive: true })) !== undefined) made.unshift(dir);
      await set(join(dir, 'cpu.rt_period_us'), 'cpu-rt-period', cpuRtPeriodMicroseconds);
      await set(join(dir, 'cpu.rt_runtime_us'), 'cpu-rt-runtime', cpuRtRuntimeMicroseconds);
    }
  } catch (error) {
    for (const dir of made) await rmdir(dir);
    throw error;
  }
}

async function set(path: string, option: string, value: number): Promise<void> {
  if (value === 0) return;
  try {
    await writeFile(path, String(value));
  } catch (error) {
    throw invalid(`${option} ${value}: ${messageOf(error)}`, { cause: error });
  }
}
