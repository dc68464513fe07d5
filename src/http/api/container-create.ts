/** The body of POST /containers/create: decoded, defaulted and brought to the newest shape. */
import type { AtLeast } from './at-least.js';
import { invalid } from '../../errors/engine-error.js';
import { parsePlatform } from '../../registry/platform.js';
import type { ContainerConfig, HostConfig, MountRequest } from '../../ports/container.js';
import type { CreateRequest } from '../../actors/container/create/create-request.js';
import { type Endpoints, networkOfMode, placeMacAddress, placeSysctls, withDefaultNamed } from './main-endpoint.js';
import type { EndpointRequest } from '../../actors/container/container.record.js';
import {
  boolean,
  dictionary,
  emptyObject,
  ignored,
  integer,
  list,
  nullable,
  object,
  optional,
  string,
  unlessZero,
  unsigned,
  words,
} from './decode.js';
import { checkListLengths } from './create-limits.js';
import { healthcheck } from './healthcheck.js';

const strings = () => nullable(list(string()));

const configShape = {
  Hostname: string(),
  Domainname: string(),
  User: string(),
  AttachStdin: boolean(),
  AttachStdout: boolean(),
  AttachStderr: boolean(),
  ExposedPorts: optional(dictionary(emptyObject())),
  Tty: boolean(),
  OpenStdin: boolean(),
  StdinOnce: boolean(),
  Env: strings(),
  Cmd: nullable(words()),
  Healthcheck: optional(healthcheck),
  ArgsEscaped: unlessZero(boolean()),
  Image: string(),
  Volumes: nullable(dictionary(emptyObject())),
  WorkingDir: string(),
  Entrypoint: nullable(words()),
  NetworkDisabled: unlessZero(boolean()),
  MacAddress: optional(string()),
  OnBuild: strings(),
  Labels: dictionary(string()),
  StopSignal: unlessZero(string()),
  StopTimeout: optional(integer()),
  Shell: optional(list(string())),
};

const rates = () => nullable(list(object({ Path: string(), Rate: unsigned(64) })));

/** `Resources` of the Engine API: also the body of the update operation. */
export const resourcesShape = {
  CpuShares: integer(),
  Memory: integer(),
  NanoCpus: integer(),
  CgroupParent: string(),
  BlkioWeight: unsigned(16),
  BlkioWeightDevice: nullable(list(object({ Path: string(), Weight: unsigned(16) }))),
  BlkioDeviceReadBps: rates(),
  BlkioDeviceWriteBps: rates(),
  BlkioDeviceReadIOps: rates(),
  BlkioDeviceWriteIOps: rates(),
  CpuPeriod: integer(),
  CpuQuota: integer(),
  CpuRealtimePeriod: integer(),
  CpuRealtimeRuntime: integer(),
  CpusetCpus: string(),
  CpusetMems: string(),
  Devices: nullable(list(object({ PathOnHost: string(), PathInContainer: string(), CgroupPermissions: string() }))),
  DeviceCgroupRules: strings(),
  DeviceRequests: nullable(
    list(
      object({
        Driver: string(),
        Count: integer(),
        DeviceIDs: strings(),
        Capabilities: nullable(list(list(string()))),
        Options: nullable(dictionary(string())),
      }),
    ),
  ),
  MemoryReservation: integer(),
  MemorySwap: integer(),
  MemorySwappiness: nullable(integer()),
  OomKillDisable: nullable(boolean()),
  PidsLimit: nullable(integer()),
  Ulimits: nullable(list(object({ Name: string(), Soft: integer(), Hard: integer() }))),
  CpuCount: integer(),
  CpuPercent: integer(),
  IOMaximumIOps: unsigned(64),
  IOMaximumBandwidth: unsigned(64),
};

const mount = object({
  Type: string(),
  Source: optional(string()),
  Target: string(),
  ReadOnly: optional(boolean()),
  Consistency: optional(string()),
  BindOptions: optional(
    object({
      Propagation: optional(string()),
      NonRecursive: optional(boolean()),
      CreateMountpoint: optional(boolean()),
      ReadOnlyNonRecursive: optional(boolean()),
      ReadOnlyForceRecursive: optional(boolean()),
    }),
  ),
  VolumeOptions: optional(
    object({
      NoCopy: optional(boolean()),
      Labels: optional(dictionary(string())),
      Subpath: optional(string()),
      DriverConfig: optional(object({ Name: optional(string()), Options: optional(dictionary(string())) })),
    }),
  ),
  TmpfsOptions: optional(
    object({ SizeBytes: optional(integer()), Mode: optional(unsigned(32)), Options: optional(list(list(string()))) }),
  ),
  ImageOptions: optional(object({ Subpath: optional(string()) })),
});

export const restartPolicy = object({ Name: string(), MaximumRetryCount: integer() });

const hostConfig = object({
  Binds: strings(),
  ContainerIDFile: string(),
  LogConfig: object({ Type: string(), Config: dictionary(string()) }),
  NetworkMode: string(),
  PortBindings: nullable(dictionary(nullable(list(object({ HostIp: string(), HostPort: string() }))))),
  RestartPolicy: restartPolicy,
  AutoRemove: boolean(),
  VolumeDriver: string(),
  VolumesFrom: strings(),
  ConsoleSize: nullable(list(unsigned(32))),
  Annotations: optional(dictionary(string())),
  CapAdd: strings(),
  CapDrop: strings(),
  CgroupnsMode: string(),
  Dns: strings(),
  DnsOptions: strings(),
  DnsSearch: strings(),
  ExtraHosts: strings(),
  GroupAdd: strings(),
  IpcMode: string(),
  Cgroup: string(),
  Links: strings(),
  OomScoreAdj: integer(),
  PidMode: string(),
  Privileged: boolean(),
  PublishAllPorts: boolean(),
  ReadonlyRootfs: boolean(),
  SecurityOpt: strings(),
  StorageOpt: optional(dictionary(string())),
  Tmpfs: optional(dictionary(string())),
  UTSMode: string(),
  UsernsMode: string(),
  ShmSize: integer(),
  Sysctls: optional(dictionary(string())),
  Runtime: string(),
  Isolation: string(),
  ...resourcesShape,
  Mounts: optional(list(mount)),
  MaskedPaths: strings(),
  ReadonlyPaths: strings(),
  Init: optional(boolean()),
});

const endpointRequest = object({
  IPAMConfig: optional(
    object({
      IPv4Address: optional(string()),
      IPv6Address: optional(string()),
      LinkLocalIPs: optional(list(string())),
    }),
  ),
  Links: optional(list(string())),
  Aliases: optional(list(string())),
  MacAddress: optional(string()),
  DriverOpts: optional(dictionary(string())),
  GwPriority: optional(integer()),
  NetworkID: ignored(string()),
  EndpointID: ignored(string()),
  Gateway: ignored(string()),
  IPAddress: ignored(string()),
  IPPrefixLen: ignored(integer()),
  IPv6Gateway: ignored(string()),
  GlobalIPv6Address: ignored(string()),
  GlobalIPv6PrefixLen: ignored(integer()),
  DNSNames: ignored(list(string())),
});

/** `EndpointSettings` as clients send it. */
export function decodeEndpoint(value: unknown, path: string): EndpointRequest {
  return endpointRequest.decode(value, path) as EndpointRequest;
}

const body = object({
  ...configShape,
  HostConfig: hostConfig,
  NetworkingConfig: object({ EndpointsConfig: dictionary(nullable(endpointRequest)) }),
});

const CONFIG_FIELDS: ReadonlySet<string> = new Set(Object.keys(configShape).map((name) => name.toLowerCase()));

/** Whether a body has a field of `Config`, in any case of letters. */
export function hasConfigField(body: object): boolean {
  return Object.keys(body).some((name) => CONFIG_FIELDS.has(name.toLowerCase()));
}

/** Decodes the body. `atLeast` tells the API version of the request; older ones lose the fields they did not know. */
export function decodeCreate(
  value: unknown,
  query: { name?: string; platform?: string },
  atLeast: AtLeast,
): CreateRequest {
  if (value === undefined || value === null) throw invalid('config cannot be empty in order to create a container');
  checkListLengths(value);
  const { HostConfig: host, NetworkingConfig, ...given } = body.decode(value, '');
  const config =
    given.Healthcheck && !atLeast(1, 44) ? { ...given, Healthcheck: withoutStartInterval(given.Healthcheck) } : given;
  if (query.platform) parsePlatform(query.platform);
  const size = host.ConsoleSize ?? [];
  const { Annotations, ...settings } = host;
  const normal = {
    ...settings,
    ...(Annotations !== undefined && atLeast(1, 43) ? { Annotations } : {}),
    ConsoleSize: atLeast(1, 42) ? ([size[0] ?? 0, size[1] ?? 0] as [number, number]) : ([0, 0] as [number, number]),
    AutoRemove: atLeast(1, 25) && host.AutoRemove,
    MemorySwappiness: host.MemorySwappiness === -1 ? null : host.MemorySwappiness,
    PidsLimit: host.PidsLimit !== null && host.PidsLimit <= 0 ? null : host.PidsLimit,
    IpcMode: host.IpcMode === '' && !atLeast(1, 40) ? 'shareable' : host.IpcMode,
  };
  const mounts = normal.Mounts?.map((request) => knownOptions(request as MountRequest, atLeast));
  checkMounts(mounts ?? [], atLeast);
  const [unsaid] = Object.entries(NetworkingConfig.EndpointsConfig).find(([, settings]) => settings === null) ?? [];
  if (unsaid !== undefined) throw invalid(`no EndpointSettings for ${unsaid}`);
  const mode = networkOfMode(host.NetworkMode);
  const named = withDefaultNamed(mode, NetworkingConfig.EndpointsConfig as Record<string, EndpointRequest>);
  const endpoints = atLeast(1, 48) ? named : withoutPriorities(named);
  if (!atLeast(1, 44) && Object.keys(endpoints).length > 1) {
    throw invalid(`Container cannot be created with multiple network endpoints: ${Object.keys(endpoints).join(', ')}`);
  }
  const { MacAddress = '', ...others } = config;
  const addressed = placeMacAddress(MacAddress, mode, endpoints, atLeast);
  const { sysctls, ...placed } = placeSysctls(normal.Sysctls ?? {}, mode, addressed.endpoints, atLeast);
  return {
    name: query.name,
    platform: atLeast(1, 41) ? query.platform : undefined,
    warnings: [
      ...(mounts ?? []).flatMap(({ Type }) => (Type === 'image' ? ['Image mount is an experimental feature'] : [])),
      ...(atLeast(1, 48) ? volumeDriverWarnings(normal.VolumeDriver, mounts ?? []) : []),
      ...addressed.warnings,
      ...placed.warnings,
    ],
    config: others as ContainerConfig,
    hostConfig: {
      ...normal,
      ...(normal.Sysctls ? { Sysctls: sysctls } : {}),
      ...(mounts ? { Mounts: mounts } : {}),
    } as HostConfig,
    keepsSubmountsWritable: !atLeast(1, 44),
    endpoints: placed.endpoints,
  };
}

/**
 * Warns that the driver of the container as a whole is not used for volumes among its mounts. Up to 1.47 the client
 * itself said so.
 */
function volumeDriverWarnings(driver: string, mounts: readonly MountRequest[]): string[] {
  const isIgnored =
    driver !== '' && mounts.some(({ Type, VolumeOptions }) => Type === 'volume' && !VolumeOptions?.DriverConfig?.Name);
  return isIgnored
    ? [
        'WARNING: the container-wide volume-driver configuration is ignored for volumes specified via ' +
          "'mount'. Use '--mount type=volume,volume-driver=...' instead",
      ]
    : [];
}

/** Drops a member that came with 1.44. */
function withoutStartInterval<T extends { readonly StartInterval?: number | undefined }>(
  check: T,
): Omit<T, 'StartInterval'> {
  const { StartInterval: _unknown, ...others } = check;
  return others;
}

/** Drops the priorities of gateways, which came with 1.48. */
function withoutPriorities(endpoints: Endpoints): Endpoints {
  return Object.fromEntries(
    Object.entries(endpoints).map(([name, { GwPriority: _unknown, ...request }]) => [name, request]),
  );
}

/**
 * Drops options of a mount that the client's version did not know; before 1.42 those of another type of mount were
 * ignored.
 */
function knownOptions(request: MountRequest, atLeast: AtLeast): MountRequest {
  const { VolumeOptions, TmpfsOptions, BindOptions, ...others } = request;
  const { NonRecursive, CreateMountpoint, ...binding } = BindOptions ?? {};
  const bindOptions = {
    ...binding,
    ...(atLeast(1, 40) && NonRecursive !== undefined ? { NonRecursive } : {}),
    ...(atLeast(1, 42) && CreateMountpoint !== undefined ? { CreateMountpoint } : {}),
  };
  return {
    ...others,
    ...(BindOptions ? { BindOptions: bindOptions } : {}),
    ...(VolumeOptions && (request.Type === 'volume' || atLeast(1, 42)) ? { VolumeOptions } : {}),
    ...(TmpfsOptions && (request.Type === 'tmpfs' || atLeast(1, 42)) ? { TmpfsOptions } : {}),
  };
}

const MOUNT_TYPES = new Set(['bind', 'volume', 'tmpfs', 'image', 'npipe', 'cluster']);

function checkMounts(mounts: readonly MountRequest[], atLeast: AtLeast): void {
  for (const { Type, BindOptions, VolumeOptions, TmpfsOptions, ImageOptions } of mounts) {
    if (Type === 'image' && !atLeast(1, 48)) throw invalid('Mount type "Image" needs API v1.48 or newer');
    if (!MOUNT_TYPES.has(Type)) throw invalid(`invalid mount config for type "${Type}": mount type unknown`);
    if (VolumeOptions?.Subpath && !atLeast(1, 45)) throw invalid('VolumeOptions.Subpath needs API v1.45 or newer');
    if (BindOptions?.ReadOnlyForceRecursive && !atLeast(1, 44))
      throw invalid('BindOptions.ReadOnlyForceRecursive needs API v1.44 or newer');
    for (const [name, given, type] of [
      ['BindOptions', BindOptions, 'bind'],
      ['VolumeOptions', VolumeOptions, 'volume'],
      ['TmpfsOptions', TmpfsOptions, 'tmpfs'],
      ['ImageOptions', ImageOptions, 'image'],
    ] as const) {
      if (given && Type !== type) throw invalid(`${name} must not be specified on mount type "${Type}"`);
    }
  }
}
