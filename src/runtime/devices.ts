/** Makes the device nodes of a container and the rules of its device cgroup. */
import type { Dirent } from 'node:fs';
import { lstat, readdir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, isEngineError, messageOf } from '../errors/engine-error.js';
import type { DeviceMapping, HostConfig } from '../ports/container.js';
import { mapInLanes } from '../text/in-lanes.js';
import { deviceNumbers } from './device-numbers.js';
import type { OciDevice, OciDeviceRule } from './oci-types.js';

export interface Devices {
  readonly nodes: readonly OciDevice[];
  readonly rules: readonly OciDeviceRule[];
}

const DENY_ALL: OciDeviceRule = { allow: false, access: 'rwm' };
const ALLOW_ALL: OciDeviceRule = { allow: true, access: 'rwm' };

/** Rules for null, zero, full, random, urandom, tty, console; the runtime creates the nodes itself. */
const DEFAULT_RULES: readonly OciDeviceRule[] = [
  DENY_ALL,
  ...(
    [
      [1, 3],
      [1, 5],
      [1, 7],
      [1, 8],
      [1, 9],
      [5, 0],
      [5, 1],
    ] as const
  ).map(([major, minor]) => ({ allow: true, type: 'c' as const, major, minor, access: 'rwm' })),
];

/** These are below /dev, but are file systems of the container and not devices of the host. */
const NOT_DEVICES = new Set(['pts', 'shm', 'fd', 'mqueue', '.lxc', '.lxd-mounts', '.udev']);

/**
 * Returns the devices: a privileged container gets every device of the host, another one the default set and what it
 * asks for.
 * @throws EngineError invalid `error gathering device information while adding custom device "X": …`.
 */
export async function buildDevices({
  Privileged,
  Devices: mappings,
  DeviceCgroupRules,
}: Pick<HostConfig, 'Privileged' | 'Devices' | 'DeviceCgroupRules'>): Promise<Devices> {
  if (Privileged) {
    const nodes = await walk('/dev', '/dev');
    return {
      nodes: unique([...nodes, ...(await gatherAll(mappings ?? [])).map(({ node }) => node)]),
      rules: [ALLOW_ALL],
    };
  }
  const gathered = await gatherAll(mappings ?? []);
  const rules = gathered.map(({ node: { type, major, minor }, access }) => ({
    allow: true,
    type: type === 'b' ? ('b' as const) : ('c' as const),
    major,
    minor,
    access,
  }));
  return {
    nodes: unique(gathered.map(({ node }) => node)),
    rules: [...DEFAULT_RULES, ...rules, ...(DeviceCgroupRules ?? []).map(parseDeviceRule)],
  };
}

/**
 * Parses `TYPE MAJOR:MINOR ACCESS`, as in `c 42:* rmw`.
 * @throws EngineError invalid `invalid device cgroup rule format: 'X'`.
 */
export function parseDeviceRule(text: string): OciDeviceRule {
  const match = /^([acb]) ([0-9]+|\*):([0-9]+|\*) ([rwm]{1,3})$/.exec(text);
  if (!match) throw invalid(`invalid device cgroup rule format: '${text}'`);
  const [, type, major, minor, access = ''] = match;
  return {
    allow: true,
    type: type as 'a' | 'b' | 'c',
    ...(major === '*' ? {} : { major: Number(major) }),
    ...(minor === '*' ? {} : { minor: Number(minor) }),
    access,
  };
}

interface Gathered {
  readonly node: OciDevice;
  readonly access: string;
}

async function gatherAll(mappings: readonly DeviceMapping[]): Promise<Gathered[]> {
  return (await mapInLanes(mappings, gather)).flat();
}

async function gather({ PathOnHost, PathInContainer, CgroupPermissions }: DeviceMapping): Promise<Gathered[]> {
  const inContainer = PathInContainer || PathOnHost;
  const access = CgroupPermissions || 'rwm';
  try {
    const source = await realpath(PathOnHost);
    const stats = await lstat(source);
    const nodes = stats.isDirectory() ? await walk(source, inContainer) : [toDevice(inContainer, stats)];
    const found = nodes.filter((node) => node !== undefined);
    if (found.length === 0) throw invalid('not a device node');
    return found.map((node) => ({ node, access }));
  } catch (error) {
    const reason = isEngineError(error)
      ? error.message
      : isMissing(error)
        ? 'no such file or directory'
        : messageOf(error);
    throw invalid(`error gathering device information while adding custom device "${PathOnHost}": ${reason}`, {
      cause: error,
    });
  }
}

/** Deeper than any real /dev. */
const MAX_DEPTH = 16;
/** More than any real /dev has. To look through all files of a host would take minutes. */
const MAX_ENTRIES = 50_000;

/** @param left counts down the entries that may still be looked at. */
async function walk(
  dir: string,
  inContainer: string,
  depth = 0,
  left = { entries: MAX_ENTRIES },
): Promise<OciDevice[]> {
  const entries = await readdir(dir, { withFileTypes: true }).catch((error: unknown) => {
    if (depth === 0) throw error;
    return ignoreUnseen(error) ?? [];
  });
  left.entries -= entries.length;
  if (left.entries < 0) throw invalid(`more than ${MAX_ENTRIES} files are there`);
  const inside = (entry: Dirent): readonly [path: string, target: string] => [
    join(dir, entry.name),
    join(inContainer, entry.name),
  ];
  const nodes = await Promise.all(
    entries
      .filter((entry) => entry.isCharacterDevice() || entry.isBlockDevice())
      .map(async (entry) => {
        const [path, target] = inside(entry);
        // The console of a container is its terminal.
        const stats = path === '/dev/console' ? undefined : await lstat(path).catch(ignoreUnseen);
        return stats && toDevice(target, stats);
      }),
  );
  const found = nodes.filter((node) => node !== undefined);
  for (const entry of entries) {
    if (!entry.isDirectory() || (dir === '/dev' && NOT_DEVICES.has(entry.name)) || depth >= MAX_DEPTH) continue;
    found.push(...(await walk(...inside(entry), depth + 1, left)));
  }
  return found;
}

type NodeStats = Awaited<ReturnType<typeof lstat>>;

/** Returns the node to make at `path` for a file of the host; undefined when that is no device. */
export function toDevice(path: string, stats: NodeStats): OciDevice | undefined {
  const type = stats.isBlockDevice() ? 'b' : stats.isCharacterDevice() ? 'c' : undefined;
  if (type === undefined) return undefined;
  return {
    path,
    type,
    ...deviceNumbers(Number(stats.rdev)),
    fileMode: Number(stats.mode) & 0o777,
    uid: Number(stats.uid),
    gid: Number(stats.gid),
  };
}

function unique(nodes: readonly OciDevice[]): OciDevice[] {
  return [...new Map(nodes.map((node) => [node.path, node])).values()];
}

export function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

/** Ignores what is gone, because devices come and go while /dev is read, and what an ordinary user may not look at. */
function ignoreUnseen(error: unknown): undefined {
  const { code } = error as NodeJS.ErrnoException;
  if (code !== 'EACCES' && !isMissing(error)) throw error;
}
