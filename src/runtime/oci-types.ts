/** The parts of the OCI runtime specification (1.0.2) that the daemon writes. */

export interface OciUser {
  uid: number;
  gid: number;
  additionalGids?: number[];
}

export interface OciCapabilities {
  bounding: readonly string[];
  effective?: readonly string[];
  permitted?: readonly string[];
}

export interface OciProcess {
  terminal: boolean;
  consoleSize?: { height: number; width: number };
  user: OciUser;
  args: readonly string[];
  env: readonly string[];
  cwd: string;
  capabilities: OciCapabilities;
  rlimits?: readonly OciRlimit[];
  noNewPrivileges: boolean;
  apparmorProfile?: string;
  selinuxLabel?: string;
  oomScoreAdj?: number;
}

export interface OciRlimit {
  type: string;
  soft: number | bigint;
  hard: number | bigint;
}

export interface OciMount {
  destination: string;
  type: string;
  source: string;
  options: readonly string[];
}

export interface OciNamespace {
  type: 'mount' | 'network' | 'uts' | 'pid' | 'ipc' | 'cgroup' | 'user';
  path?: string;
}

export interface OciIdMapping {
  containerID: number;
  hostID: number;
  size: number;
}

export interface OciDevice {
  path: string;
  /** `u` is a character device without a buffer, `p` a FIFO. */
  type: 'b' | 'c' | 'u' | 'p';
  major: number;
  minor: number;
  fileMode: number;
  uid: number;
  gid: number;
}

export interface OciHook {
  path: string;
  args?: readonly string[];
  env?: readonly string[];
  /** Seconds. */
  timeout?: number;
}

/** Programs that the runtime calls, by the moment of the call. */
export type OciHooks = Partial<
  Record<
    'prestart' | 'createRuntime' | 'createContainer' | 'startContainer' | 'poststart' | 'poststop',
    readonly OciHook[]
  >
>;

export interface OciDeviceRule {
  allow: boolean;
  type?: 'a' | 'b' | 'c';
  /** If absent, any number matches. */
  major?: number;
  minor?: number;
  access: string;
}

export interface OciThrottle {
  major: number;
  minor: number;
  rate: number;
}

/** `LinuxResources` without the device rules. */
export interface OciResources {
  memory?: { limit?: number; reservation?: number; swap?: number; swappiness?: number; disableOOMKiller?: boolean };
  cpu?: {
    shares?: number;
    quota?: number;
    period?: number;
    realtimeRuntime?: number;
    realtimePeriod?: number;
    cpus?: string;
    mems?: string;
  };
  pids?: { limit: number };
  blockIO?: {
    weight?: number;
    weightDevice?: { major: number; minor: number; weight: number }[];
    throttleReadBpsDevice?: OciThrottle[];
    throttleWriteBpsDevice?: OciThrottle[];
    throttleReadIOPSDevice?: OciThrottle[];
    throttleWriteIOPSDevice?: OciThrottle[];
  };
}

export interface OciSyscall {
  names: readonly string[];
  action: string;
  errnoRet?: number;
  args?: readonly { index: number; value: number; valueTwo?: number; op: string }[];
}

export interface OciSeccomp {
  defaultAction: string;
  defaultErrnoRet?: number;
  architectures?: readonly string[];
  flags?: readonly string[];
  listenerPath?: string;
  listenerMetadata?: string;
  syscalls: readonly OciSyscall[];
}
