/** The mounts of a container, in the order in which the runtime makes them. */
import { invalid } from '../errors/engine-error.js';
import type { HostConfig, MountPoint } from '../ports/container.js';
import type { SpecInput } from '../ports/runtime.js';
import type { OciMount } from './oci-types.js';
import { parseLabelOptions } from './selinux/label-options.js';
import { parseSecurityOptions } from './security-options.js';
import { mergeTmpfsOptions, tmpfsOptionsOf } from './tmpfs-options.js';

/** Path of the init binary inside the container. */
export const INIT_PATH = '/sbin/docker-init';

const SECURE = ['nosuid', 'noexec', 'nodev'];
/** A read-only root filesystem leaves these mounts of the kernel writable. */
const ALWAYS_WRITABLE = new Set(['/proc', '/dev', '/dev/pts', '/dev/shm', '/dev/mqueue']);

export interface MountOptions {
  /** Whether read-only binds can cover the mounts below them, too. */
  readonly recursiveReadOnly: boolean;
  readonly runsInit: boolean;
}

/** Returns the mounts. @throws EngineError invalid for unknown tmpfs options. */
export function buildMounts(input: SpecInput, options: MountOptions): OciMount[] {
  const { hostConfig } = input;
  const chosen = [
    ...input.mounts.map((point) => userMount(point, options)),
    ...tmpfsMounts(hostConfig),
    ...initMount(input, options),
    ...nestedMount(input),
  ];
  const taken = new Set(chosen.map(({ destination }) => destination));
  const system = systemMounts(input).filter(
    ({ destination }) => !taken.has(destination) && !(taken.has('/dev') && destination.startsWith('/dev/')),
  );
  const files = fileMounts(input).filter(({ destination }) => !taken.has(destination));
  // A mount comes before those below it.
  return [...system, ...[...files, ...chosen].sort((a, b) => depth(a.destination) - depth(b.destination))];
}

function depth(path: string): number {
  return path === '/' ? 0 : path.split('/').length;
}

/** These members of a container decide how it gets the file systems of the kernel. */
export interface SystemMountsInput extends Pick<SpecInput, 'shmPath' | 'userns'> {
  readonly hostConfig: Pick<HostConfig, 'Privileged' | 'ReadonlyRootfs' | 'IpcMode' | 'SecurityOpt' | 'ShmSize'>;
}

/** Returns the mounts of the kernel's file systems: /proc, /dev, /sys and those below them. */
export function systemMounts({ hostConfig, shmPath, userns }: SystemMountsInput): OciMount[] {
  const { Privileged, ReadonlyRootfs, IpcMode } = hostConfig;
  const { writableCgroups } = parseSecurityOptions(hostConfig.SecurityOpt ?? []);
  if (userns && writableCgroups !== undefined)
    throw invalid('option WritableCgroups conflicts with user namespaces and rootless mode');
  // In a user namespace, a bind of the host's cgroups cannot be made read-only.
  const isCgroupWritable = userns !== undefined || (writableCgroups ?? Privileged);
  const kernel = (isWritable: boolean): readonly string[] => (isWritable ? SECURE : [...SECURE, 'ro']);
  return [
    { destination: '/proc', type: 'proc', source: 'proc', options: SECURE },
    {
      destination: '/dev',
      type: 'tmpfs',
      source: 'tmpfs',
      options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
    },
    {
      destination: '/dev/pts',
      type: 'devpts',
      source: 'devpts',
      options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
    },
    { destination: '/sys', type: 'sysfs', source: 'sysfs', options: kernel(Privileged) },
    { destination: '/sys/fs/cgroup', type: 'cgroup', source: 'cgroup', options: kernel(isCgroupWritable) },
    { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: SECURE },
    ...shmMount(IpcMode, hostConfig.ShmSize, shmPath),
  ].map((mount) => {
    const isWritable =
      ALWAYS_WRITABLE.has(mount.destination) ||
      (mount.type === 'sysfs' && Privileged) ||
      (mount.type === 'cgroup' && isCgroupWritable);
    return ReadonlyRootfs && !isWritable ? readOnly(mount) : mount;
  });
}

function shmMount(ipcMode: string, sizeBytes: number, shmPath: string | undefined): OciMount[] {
  if (ipcMode === 'none') return [];
  const source = ipcMode === 'host' ? '/dev/shm' : shmPath;
  if (source !== undefined) return [{ destination: '/dev/shm', type: 'bind', source, options: ['rbind', 'rprivate'] }];
  return [
    { destination: '/dev/shm', type: 'tmpfs', source: 'shm', options: [...SECURE, 'mode=1777', `size=${sizeBytes}`] },
  ];
}

function fileMounts({ files, hostConfig }: SpecInput): OciMount[] {
  const options = ['rbind', 'rprivate', ...(hostConfig.ReadonlyRootfs ? ['ro'] : [])];
  return [
    ['/etc/resolv.conf', files.resolvConf],
    ['/etc/hostname', files.hostname],
    ['/etc/hosts', files.hosts],
  ].flatMap(([destination = '', source = '']) =>
    source === '' ? [] : [{ destination, type: 'bind', source, options }],
  );
}

function userMount(point: MountPoint, { recursiveReadOnly }: MountOptions): OciMount {
  const { Destination: destination, Source: source, Type, RW, Propagation, Spec: request } = point;
  if (Type === 'tmpfs') {
    return {
      destination,
      type: 'tmpfs',
      source: 'tmpfs',
      options: mergeTmpfsOptions(request ? tmpfsOptionsOf(request) : RW ? '' : 'ro'),
    };
  }
  const bind = request?.BindOptions;
  if (bind?.ReadOnlyForceRecursive === true && !recursiveReadOnly)
    throw invalid(`mount ${destination} cannot be made recursively read-only: this needs Linux 5.12`);
  const recursive = recursiveReadOnly && bind?.NonRecursive !== true && bind?.ReadOnlyNonRecursive !== true;
  return {
    destination,
    type: 'bind',
    source,
    options: [
      bind?.NonRecursive === true ? 'bind' : 'rbind',
      ...(RW ? [] : [recursive ? 'rro' : 'ro']),
      Propagation || 'rprivate',
    ],
  };
}

function tmpfsMounts({ Tmpfs = {} }: HostConfig): OciMount[] {
  return Object.entries(Tmpfs).map(([destination, options]) => ({
    destination,
    type: 'tmpfs',
    source: 'tmpfs',
    options: mergeTmpfsOptions(options),
  }));
}

function initMount({ initPath }: SpecInput, { runsInit }: MountOptions): OciMount[] {
  return runsInit && initPath !== undefined
    ? [{ destination: INIT_PATH, type: 'bind', source: initPath, options: ['bind', 'ro'] }]
    : [];
}

/** The kernel's files of SELinux, for a container that uses SELinux itself: `label=nested`. */
function nestedMount({ labels, hostConfig }: SpecInput): OciMount[] {
  if (!labels || !parseLabelOptions(hostConfig.SecurityOpt ?? []).isNested) return [];
  const place = '/sys/fs/selinux';
  return [{ destination: place, type: 'bind', source: place, options: ['rbind', 'rprivate', ...SECURE] }];
}

function readOnly(mount: OciMount): OciMount {
  return mount.options.includes('ro') ? mount : { ...mount, options: [...mount.options, 'ro'] };
}
