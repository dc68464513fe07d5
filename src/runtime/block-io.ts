/** Block I/O limits of a running container: of these the runtime's own `update` knows the weight of the whole group alone. */
import { access, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
import { groupsOf } from '../stats/reader.js';
import { parseCgroupMounts } from './host-facts.js';
import type { OciResources } from './oci-types.js';

type BlockIo = NonNullable<OciResources['blockIO']>;

interface Limit {
  /** Of cgroup version 1, in the group's directory: the first that the kernel has. */
  readonly files: readonly string[];
  /** Of version 2: a file, and the key before the value there. */
  readonly unified: readonly [file: string, key: string];
  readonly of: (limits: BlockIo) => readonly { readonly major: number; readonly minor: number; readonly value: number }[];
}

const throttle = (member: Exclude<keyof BlockIo, 'weight' | 'weightDevice'>, file: string, key: string): Limit => ({
  files: [`blkio.throttle.${file}_device`],
  unified: ['io.max', `${key}=`],
  of: (limits) => (limits[member] ?? []).map(({ rate, ...device }) => ({ ...device, value: rate })),
});

const LIMITS: readonly Limit[] = [
  throttle('throttleReadBpsDevice', 'read_bps', 'rbps'),
  throttle('throttleWriteBpsDevice', 'write_bps', 'wbps'),
  throttle('throttleReadIOPSDevice', 'read_iops', 'riops'),
  throttle('throttleWriteIOPSDevice', 'write_iops', 'wiops'),
  { files: ['blkio.weight_device', 'blkio.bfq.weight_device'], unified: ['io.bfq.weight', ''], of: ({ weightDevice = [] }) => weightDevice.map(({ weight, ...device }) => ({ ...device, value: weight })) },
];

/** What is written for one device: 0 lifts its limit. */
interface Entry {
  readonly limit: Limit;
  readonly device: string;
  readonly value: number;
}

/**
 * Brings limits of devices from what they were to what they shall be. Nothing has changed when it throws.
 * @throws EngineError invalid for a device that the kernel cannot limit.
 */
export async function changeBlockIo({ id, pid }: { readonly id: string; readonly pid: number }, before: BlockIo, after: BlockIo): Promise<void> {
  const entries = difference(before, after);
  if (entries.length === 0) return;
  const [mountinfo, membership] = await Promise.all([readFile('/proc/self/mountinfo', 'utf8'), readFile(`/proc/${pid}/cgroup`, 'utf8')]);
  const { controllers, unified = '/sys/fs/cgroup' } = parseCgroupMounts(mountinfo);
  const legacy = controllers.get('blkio');
  const dir = join(legacy ?? unified, groupsOf(membership, id)(legacy === undefined ? '' : 'blkio') ?? id);
  try {
    for (const entry of entries) await write(dir, entry, legacy === undefined);
  } catch (error) {
    for (const entry of difference(after, before)) await write(dir, entry, legacy === undefined).catch(() => undefined);
    throw invalid(`block I/O of devices cannot be limited: ${messageOf(error)}`, { code: 'BLOCK_IO', cause: error });
  }
}

function difference(before: BlockIo, after: BlockIo): Entry[] {
  return LIMITS.flatMap((limit) => {
    const values = (limits: BlockIo): ReadonlyMap<string, number> => new Map(limit.of(limits).map(({ major, minor, value }) => [`${major}:${minor}`, value]));
    const [old, wanted] = [values(before), values(after)];
    const lifted = [...old.keys()].filter((device) => !wanted.has(device)).map((device) => ({ limit, device, value: 0 }));
    return [...lifted, ...[...wanted].filter(([device, value]) => old.get(device) !== value).map(([device, value]) => ({ limit, device, value }))];
  });
}

async function write(dir: string, { limit: { files, unified }, device, value }: Entry, isUnified: boolean): Promise<void> {
  if (isUnified) {
    const [file, key] = unified;
    const none = key === '' ? 'default' : 'max';
    return writeFile(join(dir, file), `${device} ${key}${value === 0 ? none : value}`);
  }
  return writeFile(join(dir, await firstThere(dir, files)), `${device} ${value}`);
}

async function firstThere(dir: string, files: readonly string[]): Promise<string> {
  const [file = '', ...others] = files;
  if (others.length === 0) return file;
  return access(join(dir, file)).then(() => file, () => firstThere(dir, others));
}
