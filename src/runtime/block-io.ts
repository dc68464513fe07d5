/**
 * Sets block I/O limits of a running container. The runtime's own `update` can only set the weight of the whole group.
 */
import { access, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
import { groupsOf } from '../stats/reader.js';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';
import type { OciResources } from './oci-types.js';

type BlockIo = NonNullable<OciResources['blockIO']>;

interface Limit {
  /** On cgroup version 1 these files are in the group's directory; the first one that exists is used. */
  readonly files: readonly string[];
  /** On version 2 this is the file, and the key before the value in it. */
  readonly unified: readonly [file: string, key: string];
  readonly of: (
    limits: BlockIo,
  ) => readonly { readonly major: number; readonly minor: number; readonly value: number }[];
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
  {
    files: ['blkio.weight_device', 'blkio.bfq.weight_device'],
    unified: ['io.bfq.weight', ''],
    of: ({ weightDevice = [] }) => weightDevice.map(({ weight, ...device }) => ({ ...device, value: weight })),
  },
];

/** The text for one device; the value 0 lifts its limit. */
interface Entry {
  readonly limit: Limit;
  readonly device: string;
  readonly value: number;
}

/**
 * Sets the limits of devices, in place of those before. When it throws, nothing has changed.
 * @throws EngineError invalid for a device that the kernel cannot limit.
 */
export async function setBlockIo(
  { id, pid }: { readonly id: string; readonly pid: number },
  wanted: BlockIo,
): Promise<void> {
  const [mountinfo, membership] = await Promise.all([
    readFile('/proc/self/mountinfo', 'utf8'),
    readFile(`/proc/${pid}/cgroup`, 'utf8'),
  ]);
  const { controllers, unified = '/sys/fs/cgroup' } = parseCgroupMounts(mountinfo);
  const root = controllers.get('blkio');
  const group = groupsOf(membership, id)(root === undefined ? '' : 'blkio');
  if (group === undefined) return;
  const directory = new Directory(join(root ?? unified, group), root === undefined);
  const changes: Entry[] = [];
  const old: Entry[] = [];
  for (const limit of LIMITS) {
    const current = await directory.read(limit);
    const next = new Map(limit.of(wanted).map(({ major, minor, value }) => [`${major}:${minor}`, value]));
    for (const device of new Set([...current.keys(), ...next.keys()])) {
      const [was, value] = [current.get(device) ?? 0, next.get(device) ?? 0];
      if (was === value) continue;
      changes.push({ limit, device, value });
      old.push({ limit, device, value: was });
    }
  }
  try {
    for (const entry of changes) await directory.write(entry);
  } catch (error) {
    for (const entry of old) await directory.write(entry).catch(() => undefined);
    throw invalid(`block I/O of a device cannot be limited: ${messageOf(error)}`, { code: 'BLOCK_IO', cause: error });
  }
}

/** The directory of a control group. */
class Directory {
  constructor(
    private readonly path: string,
    private readonly isUnified: boolean,
  ) {}

  /** Returns the values by device; none if the kernel has no such limit. */
  async read(limit: Limit): Promise<ReadonlyMap<string, number>> {
    const [, key] = limit.unified;
    const text = await this.#file(limit)
      .then((path) => readFile(path, 'utf8'))
      .catch(() => '');
    const lines = text.split('\n').flatMap((line): [string, number][] => {
      const [device = '', ...values] = line.split(' ');
      const value = this.isUnified ? values.find((part) => part.startsWith(key))?.slice(key.length) : values[0];
      return /^\d+:\d+$/.test(device) && Number(value) > 0 ? [[device, Number(value)]] : [];
    });
    return new Map(lines);
  }

  async write({ limit, device, value }: Entry): Promise<void> {
    const [, key] = limit.unified;
    const none = !this.isUnified ? '0' : key === '' ? 'default' : 'max';
    await writeFile(await this.#file(limit), `${device} ${this.isUnified ? key : ''}${value === 0 ? none : value}`);
  }

  /** Returns the first file that exists, else the last. */
  async #file({ files, unified }: Limit): Promise<string> {
    const paths = (this.isUnified ? [unified[0]] : files).map((file) => join(this.path, file));
    for (const path of paths)
      if (
        await access(path).then(
          () => true,
          () => false,
        )
      )
        return path;
    return paths.at(-1) ?? this.path;
  }
}
