/**
 * Every field of the request bodies, with the JSON type that the API gives it: from this come requests with another
 * type.
 */

export type FieldKind =
  | 'string'
  | 'integer'
  | 'unsigned'
  | 'boolean'
  | 'strings'
  | 'words'
  | 'map'
  | 'set'
  | 'object'
  | 'list';

/** Field paths by kind. `Name[]` descends into the one element of a list, `Name{x}` into the member `x` of a map. */
export type Fields = Readonly<Partial<Record<FieldKind, readonly string[]>>>;

const RESOURCES: Fields = {
  integer: [
    'CpuShares',
    'Memory',
    'NanoCpus',
    'CpuPeriod',
    'CpuQuota',
    'CpuRealtimePeriod',
    'CpuRealtimeRuntime',
    'MemoryReservation',
    'MemorySwap',
    'MemorySwappiness',
    'PidsLimit',
    'CpuCount',
    'CpuPercent',
    'Ulimits[].Soft',
    'Ulimits[].Hard',
    'DeviceRequests[].Count',
  ],
  unsigned: [
    'BlkioWeight',
    'BlkioWeightDevice[].Weight',
    'BlkioDeviceReadBps[].Rate',
    'BlkioDeviceWriteIOps[].Rate',
    'IOMaximumIOps',
    'IOMaximumBandwidth',
  ],
  boolean: ['OomKillDisable'],
  string: [
    'CgroupParent',
    'CpusetCpus',
    'CpusetMems',
    'Devices[].PathOnHost',
    'Devices[].CgroupPermissions',
    'Ulimits[].Name',
    'BlkioWeightDevice[].Path',
    'DeviceRequests[].Driver',
  ],
  strings: ['DeviceCgroupRules', 'DeviceRequests[].DeviceIDs'],
  map: ['DeviceRequests[].Options'],
  list: [
    'BlkioWeightDevice',
    'BlkioDeviceReadBps',
    'BlkioDeviceWriteBps',
    'BlkioDeviceReadIOps',
    'BlkioDeviceWriteIOps',
    'Devices',
    'DeviceRequests',
    'Ulimits',
    'DeviceRequests[].Capabilities',
  ],
};

const HOST: Fields = {
  integer: [
    ...(RESOURCES.integer ?? []),
    'OomScoreAdj',
    'ShmSize',
    'RestartPolicy.MaximumRetryCount',
    'Mounts[].TmpfsOptions.SizeBytes',
  ],
  unsigned: [...(RESOURCES.unsigned ?? []), 'Mounts[].TmpfsOptions.Mode'],
  boolean: [
    ...(RESOURCES.boolean ?? []),
    'AutoRemove',
    'Privileged',
    'PublishAllPorts',
    'ReadonlyRootfs',
    'Init',
    'Mounts[].ReadOnly',
    'Mounts[].BindOptions.NonRecursive',
    'Mounts[].VolumeOptions.NoCopy',
  ],
  string: [
    ...(RESOURCES.string ?? []),
    'ContainerIDFile',
    'LogConfig.Type',
    'NetworkMode',
    'RestartPolicy.Name',
    'VolumeDriver',
    'CgroupnsMode',
    'IpcMode',
    'Cgroup',
    'PidMode',
    'UTSMode',
    'UsernsMode',
    'Runtime',
    'Isolation',
    'Mounts[].Target',
    'Mounts[].Source',
    'Mounts[].Type',
    'Mounts[].Consistency',
    'Mounts[].BindOptions.Propagation',
    'Mounts[].VolumeOptions.DriverConfig.Name',
    'PortBindings{80/tcp}[].HostPort',
    'PortBindings{80/tcp}[].HostIp',
  ],
  strings: [
    ...(RESOURCES.strings ?? []),
    'Binds',
    'VolumesFrom',
    'Dns',
    'DnsOptions',
    'DnsSearch',
    'ExtraHosts',
    'GroupAdd',
    'Links',
    'SecurityOpt',
    'MaskedPaths',
    'ReadonlyPaths',
  ],
  words: ['CapAdd', 'CapDrop'],
  map: [
    ...(RESOURCES.map ?? []),
    'LogConfig.Config',
    'StorageOpt',
    'Tmpfs',
    'Sysctls',
    'Mounts[].VolumeOptions.Labels',
  ],
  object: [
    'LogConfig',
    'RestartPolicy',
    'PortBindings',
    'Mounts[].BindOptions',
    'Mounts[].VolumeOptions',
    'Mounts[].TmpfsOptions',
  ],
  list: [...(RESOURCES.list ?? []), 'Mounts', 'PortBindings{80/tcp}', 'ConsoleSize'],
};

const CONFIG: Fields = {
  string: ['Hostname', 'Domainname', 'User', 'Image', 'WorkingDir', 'MacAddress', 'StopSignal'],
  boolean: [
    'AttachStdin',
    'AttachStdout',
    'AttachStderr',
    'Tty',
    'OpenStdin',
    'StdinOnce',
    'NetworkDisabled',
    'ArgsEscaped',
  ],
  integer: [
    'StopTimeout',
    'Healthcheck.Interval',
    'Healthcheck.Timeout',
    'Healthcheck.StartPeriod',
    'Healthcheck.Retries',
  ],
  strings: ['Env', 'OnBuild', 'Healthcheck.Test'],
  words: ['Cmd', 'Entrypoint', 'Shell'],
  map: ['Labels'],
  set: ['ExposedPorts', 'Volumes'],
  object: ['Healthcheck', 'HostConfig', 'NetworkingConfig'],
};

const ENDPOINT: Fields = {
  string: [
    'MacAddress',
    'IPAMConfig.IPv4Address',
    'IPAMConfig.IPv6Address',
    'NetworkID',
    'EndpointID',
    'Gateway',
    'IPAddress',
    'IPv6Gateway',
    'GlobalIPv6Address',
  ],
  integer: ['IPPrefixLen', 'GlobalIPv6PrefixLen'],
  strings: ['Links', 'Aliases', 'IPAMConfig.LinkLocalIPs'],
  map: ['DriverOpts'],
  object: ['IPAMConfig'],
};

const below = (prefix: string, fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).map(([kind, paths]) => [kind, paths.map((path) => `${prefix}.${path}`)]));

export interface BodyOf {
  readonly path: string;
  /** The body has this besides the field in question. */
  readonly valid: Readonly<Record<string, unknown>>;
  readonly fields: Fields;
}

/** `target` runs, `still` does not. */
export const BODIES: readonly BodyOf[] = [
  { path: '/containers/create', valid: { Image: '{image}' }, fields: CONFIG },
  { path: '/containers/create', valid: { Image: '{image}' }, fields: below('HostConfig', HOST) },
  {
    path: '/containers/create',
    valid: { Image: '{image}' },
    fields: below('NetworkingConfig.EndpointsConfig{bridge}', ENDPOINT),
  },
  {
    path: '/containers/create',
    valid: { Image: '{image}' },
    fields: { object: ['NetworkingConfig.EndpointsConfig', 'NetworkingConfig.EndpointsConfig{bridge}'] },
  },
  {
    path: '/containers/still/update',
    valid: {},
    fields: {
      ...RESOURCES,
      object: ['RestartPolicy'],
      integer: [...(RESOURCES.integer ?? []), 'RestartPolicy.MaximumRetryCount'],
      string: [...(RESOURCES.string ?? []), 'RestartPolicy.Name'],
    },
  },
  {
    path: '/containers/target/exec',
    valid: { Cmd: ['true'] },
    fields: {
      boolean: ['AttachStdin', 'AttachStdout', 'AttachStderr', 'Tty', 'Privileged'],
      string: ['User', 'WorkingDir', 'DetachKeys'],
      strings: ['Env'],
      words: ['Cmd'],
    },
  },
  {
    path: '/networks/create',
    valid: { Name: 'wrong' },
    fields: {
      string: [
        'Name',
        'Driver',
        'Scope',
        'IPAM.Driver',
        'IPAM.Config[].Subnet',
        'IPAM.Config[].IPRange',
        'IPAM.Config[].Gateway',
        'ConfigFrom.Network',
      ],
      boolean: ['CheckDuplicate', 'Internal', 'Attachable', 'Ingress', 'ConfigOnly', 'EnableIPv6'],
      map: ['Options', 'Labels', 'IPAM.Options', 'IPAM.Config[].AuxiliaryAddresses'],
      object: ['IPAM', 'ConfigFrom'],
      list: ['IPAM.Config'],
    },
  },
  {
    path: '/networks/own/connect',
    valid: { Container: 'still' },
    fields: { string: ['Container'], object: ['EndpointConfig'] },
  },
  { path: '/networks/own/connect', valid: { Container: 'still' }, fields: below('EndpointConfig', ENDPOINT) },
  {
    path: '/networks/own/disconnect',
    valid: { Container: 'nobody' },
    fields: { string: ['Container'], boolean: ['Force'] },
  },
  {
    path: '/volumes/create',
    valid: { Name: 'wrong' },
    fields: { string: ['Name', 'Driver'], map: ['DriverOpts', 'Labels'] },
  },
];

/** A field of this kind must not have these values. Null is allowed everywhere and comes along to show it. */
export const WRONG: Readonly<Record<FieldKind, readonly unknown[]>> = {
  string: [5, true, [], {}, null],
  integer: ['1', 1.5, true, [], {}, 1e30, -1e30, null],
  unsigned: ['1', -1, 1.5, true, [], 1e30, null],
  boolean: ['true', 1, [], {}, null],
  strings: ['one', 5, {}, [5], [[]], [null], null],
  words: [5, {}, [5], [[]], null],
  map: ['one', 5, [], { a: 5 }, { a: {} }, { a: null }, null],
  set: ['one', 5, ['80/tcp'], { '80/tcp': 5 }, { '80/tcp': [] }, null],
  object: ['one', 5, [5], null],
  list: ['one', 5, [5], ['x'], [[5]], { a: 1 }, null],
};

/** `value` at a path of a fresh copy of `body`. */
export function withField(
  body: Readonly<Record<string, unknown>>,
  path: string,
  value: unknown,
): Record<string, unknown> {
  const keys = path
    .split('.')
    .flatMap((part) => part.split(/(?=\[)|(?=\{)/))
    .map((key) => (key === '[]' ? 0 : key.replace(/^\{(.*)\}$/, '$1')));
  const place = (at: unknown, [key, ...rest]: readonly (string | number)[]): unknown => {
    if (key === undefined) return value;
    if (key === 0) return [place(undefined, rest)];
    return {
      ...(typeof at === 'object' && at !== null ? at : {}),
      [key]: place((at as Record<string, unknown> | undefined)?.[key], rest),
    };
  };
  return place(body, keys) as Record<string, unknown>;
}
