/**
 * Value types of a container as the Engine API spells them. They are persisted and rendered in this spelling, so that
 * what a client gave comes back bit for bit; only the fields that the daemon acts on are named, others are kept as is.
 */

import type { Digest } from './storage.js';

/** The largest number that clients can read into a signed integer of 64 bits. It stands for "unlimited". */
export const MAX_INTEGER = 2 ** 63 - 1024;

export type RestartPolicyName = '' | 'no' | 'always' | 'unless-stopped' | 'on-failure';

export interface HealthConfig {
  Test?: string[];
  Interval?: number;
  Timeout?: number;
  StartPeriod?: number;
  StartInterval?: number;
  Retries?: number;
}

/** `Config` of the Engine API: what the image and the client say about the process. */
export interface ContainerConfig {
  Hostname: string;
  Domainname: string;
  User: string;
  AttachStdin: boolean;
  AttachStdout: boolean;
  AttachStderr: boolean;
  ExposedPorts?: Record<string, Record<string, never>>;
  Tty: boolean;
  OpenStdin: boolean;
  StdinOnce: boolean;
  Env: string[] | null;
  Cmd: string[] | null;
  Healthcheck?: HealthConfig;
  ArgsEscaped?: boolean;
  Image: string;
  Volumes: Record<string, Record<string, never>> | null;
  WorkingDir: string;
  Entrypoint: string[] | null;
  NetworkDisabled?: boolean;
  MacAddress?: string;
  OnBuild: string[] | null;
  Labels: Record<string, string>;
  StopSignal?: string;
  StopTimeout?: number;
  Shell?: string[];
}

export interface PortBinding {
  HostIp: string;
  HostPort: string;
}

export interface MountRequest {
  Type: 'bind' | 'volume' | 'tmpfs' | 'image' | 'npipe' | 'cluster';
  Source?: string;
  Target: string;
  ReadOnly?: boolean;
  Consistency?: string;
  BindOptions?: {
    Propagation?: string;
    NonRecursive?: boolean;
    CreateMountpoint?: boolean;
    ReadOnlyNonRecursive?: boolean;
    ReadOnlyForceRecursive?: boolean;
  };
  VolumeOptions?: {
    NoCopy?: boolean;
    Labels?: Record<string, string>;
    Subpath?: string;
    DriverConfig?: { Name?: string; Options?: Record<string, string> };
  };
  TmpfsOptions?: { SizeBytes?: number; Mode?: number; Options?: string[][] };
  ImageOptions?: { Subpath?: string };
}

export interface Ulimit {
  Name: string;
  Soft: number;
  Hard: number;
}

export interface DeviceRequest {
  Driver: string;
  /** -1 means all. */
  Count: number;
  DeviceIDs: string[] | null;
  Capabilities: string[][] | null;
  Options: Record<string, string> | null;
}

export interface DeviceMapping {
  PathOnHost: string;
  PathInContainer: string;
  CgroupPermissions: string;
}

/** `HostConfig` of the Engine API after defaults were filled in. */
export interface HostConfig {
  Binds: string[] | null;
  ContainerIDFile: string;
  LogConfig: { Type: string; Config: Record<string, string> };
  NetworkMode: string;
  PortBindings: Record<string, PortBinding[] | null> | null;
  RestartPolicy: { Name: RestartPolicyName; MaximumRetryCount: number };
  AutoRemove: boolean;
  VolumeDriver: string;
  VolumesFrom: string[] | null;
  ConsoleSize: [number, number];
  Annotations?: Record<string, string>;
  CapAdd: string[] | null;
  CapDrop: string[] | null;
  CgroupnsMode: string;
  Dns: string[] | null;
  DnsOptions: string[] | null;
  DnsSearch: string[] | null;
  ExtraHosts: string[] | null;
  GroupAdd: string[] | null;
  IpcMode: string;
  Cgroup: string;
  Links: string[] | null;
  OomScoreAdj: number;
  PidMode: string;
  Privileged: boolean;
  PublishAllPorts: boolean;
  ReadonlyRootfs: boolean;
  SecurityOpt: string[] | null;
  StorageOpt?: Record<string, string>;
  Tmpfs?: Record<string, string>;
  UTSMode: string;
  UsernsMode: string;
  ShmSize: number;
  Sysctls?: Record<string, string>;
  Runtime: string;
  Isolation: string;
  CpuShares: number;
  Memory: number;
  NanoCpus: number;
  CgroupParent: string;
  BlkioWeight: number;
  BlkioWeightDevice: { Path: string; Weight: number }[] | null;
  BlkioDeviceReadBps: { Path: string; Rate: number }[] | null;
  BlkioDeviceWriteBps: { Path: string; Rate: number }[] | null;
  BlkioDeviceReadIOps: { Path: string; Rate: number }[] | null;
  BlkioDeviceWriteIOps: { Path: string; Rate: number }[] | null;
  CpuPeriod: number;
  CpuQuota: number;
  CpuRealtimePeriod: number;
  CpuRealtimeRuntime: number;
  CpusetCpus: string;
  CpusetMems: string;
  Devices: DeviceMapping[] | null;
  DeviceCgroupRules: string[] | null;
  DeviceRequests: DeviceRequest[] | null;
  MemoryReservation: number;
  MemorySwap: number;
  MemorySwappiness: number | null;
  OomKillDisable: boolean | null;
  PidsLimit: number | null;
  Ulimits: Ulimit[] | null;
  CpuCount: number;
  CpuPercent: number;
  IOMaximumIOps: number;
  IOMaximumBandwidth: number;
  Mounts?: MountRequest[];
  MaskedPaths: string[] | null;
  ReadonlyPaths: string[] | null;
  Init?: boolean;
}

/** A mount that the daemon resolved for a container: what inspect shows under `Mounts` and the spec builder acts on. */
export interface MountPoint {
  Type: 'bind' | 'volume' | 'tmpfs' | 'image';
  Name?: string;
  /** Host path, already created and checked. For a mount of type image, its ID. Empty for tmpfs. */
  Source: string;
  Destination: string;
  Driver?: string;
  Mode: string;
  RW: boolean;
  Propagation: string;
  /**
   * The request that the container made for this mount. A container that takes over its mounts makes the same request.
   * Not shown to clients.
   */
  Spec?: MountRequest;
  /** The topmost layer of a mount of type image. Not shown to clients. */
  TopLayer?: Digest | undefined;
}
