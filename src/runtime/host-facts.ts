/**
 * The abilities of this kernel and its cgroups. They are read once at the start, because they do not change while the
 * host runs.
 */
import { access, readFile, stat } from 'node:fs/promises';
import { arch, cpus, release } from 'node:os';
import { join } from 'node:path';
import { parseCgroupMounts } from '../sys/process/cgroup-mounts.js';
import { hasX32 } from '../sys/ffi/x32.js';
import { countIds, outerUser } from '../sys/users/user-namespace.js';
import { isAtLeast, parseVersion, type Version } from '../text/version.js';
import { capabilitiesOf } from './capabilities.js';
import type { CgroupDriver } from './cgroup-path.js';

export interface CgroupFacts {
  /** 1 on hosts with controllers in the first hierarchy, even if there is a unified one beside it. */
  readonly version: 1 | 2;
  /** The daemon's own cgroup (on version 1, that of the cpu controller). */
  readonly own: string;
  readonly memoryLimit: boolean;
  readonly swapLimit: boolean;
  readonly memoryReservation: boolean;
  readonly memorySwappiness: boolean;
  readonly oomKillDisable: boolean;
  readonly cpuShares: boolean;
  readonly cpuQuota: boolean;
  readonly cpuRealtime: boolean;
  /** The CPUs and memory nodes that may be used, as lists such as `0-3,6`; undefined without the controller. */
  readonly cpuset: { readonly cpus: string; readonly mems: string } | undefined;
  readonly pids: boolean;
  readonly blkioWeight: boolean;
  readonly blkioWeightDevice: boolean;
  readonly blkioThrottle: boolean;
  readonly namespaces: boolean;
}

export interface HostFacts {
  /** Whether the daemon is one of an ordinary user, who is root only in a user namespace. */
  readonly rootless: boolean;
  /** The lowest score of the out-of-memory killer that the daemon may give to a process. */
  readonly lowestOomScore: number;
  /** So many groups, from 0 on, exist in the daemon's user namespace. */
  readonly groups: number;
  /** As in images: `amd64`. */
  readonly architecture: string;
  readonly kernel: Version;
  readonly cpuCount: number;
  /** The capabilities that the daemon can give, in the kernel's order. */
  readonly capabilities: readonly string[];
  readonly cgroup: CgroupFacts;
  /** Whether the kernel has AppArmor, and this process can see what it has loaded. */
  readonly apparmor: boolean;
  readonly seccomp: boolean;
  /** Whether programs of the x32 ABI may run; true when it is not known. */
  readonly x32: boolean;
  /** Whether mount_setattr(2) knows AT_RECURSIVE (Linux 5.12). */
  readonly recursiveReadOnly: boolean;
  /** Whether the host was booted with systemd. */
  readonly systemd: boolean;
}

/** No limit can be set, whatever the kernel has. */
const NO_LIMITS = {
  own: '/',
  memoryLimit: false,
  swapLimit: false,
  memoryReservation: false,
  memorySwappiness: false,
  oomKillDisable: false,
  cpuShares: false,
  cpuQuota: false,
  cpuRealtime: false,
  cpuset: undefined,
  pids: false,
  blkioWeight: false,
  blkioWeightDevice: false,
  blkioThrottle: false,
};

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386', ppc64: 'ppc64le' };

/** The part of the configuration that decides which of the host's abilities the daemon may use. */
export interface Rights {
  readonly rootless: boolean;
  readonly cgroupDriver: CgroupDriver;
}

/** The first kernel that makes a mount and all below it read-only in one call. */
const RECURSIVE_READ_ONLY: Version = [5, 12];

const OF_ROOT: Rights = { rootless: false, cgroupDriver: 'cgroupfs' };

/** Reads the facts. @throws Error when /proc is not mounted. */
export async function readHostFacts({ rootless, cgroupDriver }: Rights = OF_ROOT): Promise<HostFacts> {
  const kernel = parseVersion(release());
  const [status, cgroup, apparmor, systemd] = await Promise.all([
    readFile('/proc/self/status', 'utf8'),
    readCgroupFacts(rootless ? cgroupDriver : undefined),
    // Only root of the machine may load profiles.
    !rootless && hasAppArmor(),
    // sd_booted(3) looks for the same directory.
    stat('/run/systemd/system').then((stats) => stats.isDirectory(), no),
  ]);
  const field = (name: string): string | undefined => new RegExp(`^${name}:\\s*(\\S+)`, 'm').exec(status)?.[1];
  return {
    rootless,
    lowestOomScore: rootless ? Number(await readFile('/proc/self/oom_score_adj', 'utf8')) : -1000,
    groups: countIds('gid'),
    architecture: ARCHITECTURES[arch()] ?? arch(),
    kernel,
    cpuCount: cpus().length,
    capabilities: capabilitiesOf(BigInt(`0x${field('CapBnd') ?? '0'}`)),
    cgroup,
    apparmor,
    // The line is there when the kernel was built with seccomp.
    seccomp: field('Seccomp') !== undefined,
    x32: field('Seccomp') !== '0' || hasX32(),
    recursiveReadOnly: isAtLeast(kernel, RECURSIVE_READ_ONLY),
    systemd,
  };
}

/** The runtime asks the same before it applies a profile. */
async function hasAppArmor(): Promise<boolean> {
  const [enabled, isVisible] = await Promise.all([
    readFile('/sys/module/apparmor/parameters/enabled', 'utf8').then((text) => text.startsWith('Y'), no),
    exists('/sys/kernel/security/apparmor'),
  ]);
  return enabled && isVisible;
}

/** @param ofUser is how an ordinary user's daemon manages groups. */
async function readCgroupFacts(ofUser: CgroupDriver | undefined): Promise<CgroupFacts> {
  const [mountinfo, self, namespaces] = await Promise.all([
    readFile('/proc/self/mountinfo', 'utf8'),
    readFile('/proc/self/cgroup', 'utf8'),
    exists('/proc/self/ns/cgroup'),
  ]);
  const mounts = parseCgroupMounts(mountinfo);
  if (ofUser === 'none') return { ...NO_LIMITS, version: mounts.controllers.size === 0 ? 2 : 1, namespaces };
  if (mounts.controllers.size === 0) {
    const user = outerUser();
    // The groups of containers are made by the user's manager, with what it was given.
    const manager = ofUser === undefined ? '/' : `/user.slice/user-${user}.slice/user@${user}.service`;
    const unified = mounts.unified ?? '/sys/fs/cgroup';
    return { ...(await readUnified(unified, ownCgroup(self, ''), join(unified, manager))), namespaces };
  }
  return { ...(await readLegacy(mounts.controllers, ownCgroup(self, 'cpu'))), namespaces };
}

function ownCgroup(self: string, controller: string): string {
  const lines = self.split('\n').map((line) => line.split(':'));
  const line =
    lines.find(([, names = '']) => names.split(',').includes(controller)) ?? lines.find(([, names]) => names === '');
  return line?.slice(2).join(':') || '/';
}

async function readLegacy(
  controllers: ReadonlyMap<string, string>,
  own: string,
): Promise<Omit<CgroupFacts, 'namespaces'>> {
  const has = (controller: string, file: string): Promise<boolean> => {
    const mountPoint = controllers.get(controller);
    return mountPoint === undefined ? Promise.resolve(false) : exists(join(mountPoint, file));
  };
  const [
    memoryLimit,
    swapLimit,
    memoryReservation,
    memorySwappiness,
    oomKillDisable,
    cpuShares,
    cpuQuota,
    cpuRealtime,
    weight,
    bfq,
    blkioWeightDevice,
    blkioThrottle,
    cpuset,
  ] = await Promise.all([
    has('memory', 'memory.limit_in_bytes'),
    has('memory', 'memory.memsw.limit_in_bytes'),
    has('memory', 'memory.soft_limit_in_bytes'),
    has('memory', 'memory.swappiness'),
    has('memory', 'memory.oom_control'),
    has('cpu', 'cpu.shares'),
    has('cpu', 'cpu.cfs_quota_us'),
    has('cpu', 'cpu.rt_runtime_us'),
    has('blkio', 'blkio.weight'),
    // The root does not show the weight of BFQ, but its statistics.
    has('blkio', 'blkio.bfq.io_serviced'),
    has('blkio', 'blkio.weight_device'),
    has('blkio', 'blkio.throttle.read_bps_device'),
    readCpuset(controllers.get('cpuset'), 'cpuset.effective_cpus', 'cpuset.effective_mems'),
  ]);
  const blkioWeight = weight || bfq;
  return {
    version: 1,
    own,
    memoryLimit,
    swapLimit,
    memoryReservation,
    memorySwappiness,
    oomKillDisable,
    cpuShares,
    cpuQuota,
    cpuRealtime,
    cpuset,
    pids: controllers.has('pids'),
    blkioWeight,
    blkioWeightDevice,
    blkioThrottle,
  };
}

async function readUnified(mountPoint: string, own: string, manager: string): Promise<Omit<CgroupFacts, 'namespaces'>> {
  const [controllers, swapLimit, cpuset] = await Promise.all([
    readFile(join(manager, 'cgroup.controllers'), 'utf8').then(
      (text) => new Set(text.trim().split(' ')),
      () => new Set<string>(),
    ),
    // The root cgroup has no limits that could be looked at.
    own === '/' ? true : exists(join(mountPoint, own, 'memory.swap.max')),
    readCpuset(mountPoint, 'cpuset.cpus.effective', 'cpuset.mems.effective'),
  ]);
  const [memory, cpu, io] = [controllers.has('memory'), controllers.has('cpu'), controllers.has('io')];
  return {
    version: 2,
    own,
    memoryLimit: memory,
    swapLimit: memory && swapLimit,
    memoryReservation: memory,
    memorySwappiness: false,
    oomKillDisable: false,
    cpuShares: cpu,
    cpuQuota: cpu,
    cpuRealtime: false,
    cpuset: controllers.has('cpuset') ? cpuset : undefined,
    pids: controllers.has('pids'),
    blkioWeight: io,
    blkioWeightDevice: io,
    blkioThrottle: io,
  };
}

async function readCpuset(dir: string | undefined, cpusFile: string, memsFile: string): Promise<CgroupFacts['cpuset']> {
  if (dir === undefined) return undefined;
  const read = (file: string): Promise<string> =>
    readFile(join(dir, file), 'utf8').then(
      (text) => text.trim(),
      () => '',
    );
  const [cpuList, mems] = await Promise.all([read(cpusFile), read(memsFile)]);
  return cpuList === '' ? undefined : { cpus: cpuList, mems };
}

function exists(path: string): Promise<boolean> {
  return access(path).then(() => true, no);
}

function no(): boolean {
  return false;
}
