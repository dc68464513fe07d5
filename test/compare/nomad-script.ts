/**
 * The requests of Nomad's Docker driver in the life of a task, in their order and with its fields: what it asks as it
 * starts, a sandbox for a group's network, an image, a container with limits and mounts, its log and statistics,
 * commands in it, signals, the end, and what it cleans up. Read in the sources of Nomad 2.0.6.
 */
import type { Step } from './script.js';

const get = (path: string): Step => ({ method: 'GET', path });
const post = (path: string, json?: unknown, more: Partial<Step> = {}): Step => ({
  method: 'POST',
  path,
  ...(json === undefined ? {} : { json }),
  ...more,
});
const del = (path: string): Step => ({ method: 'DELETE', path });

const ALLOC = '0a1b2c3d-1111-2222-3333-444455556666';
const TASK = `web-${ALLOC}`;
const PAUSE = `nomad_init_${ALLOC}`;
const LABEL = 'com.hashicorp.nomad.alloc_id';
const MIB = 1024 ** 2;

/** The Go client sends all fields, those that nobody has set too. */
const CONFIG = {
  Hostname: '',
  Domainname: '',
  User: '',
  AttachStdin: false,
  AttachStdout: false,
  AttachStderr: false,
  Tty: false,
  OpenStdin: false,
  StdinOnce: false,
  Env: null,
  Cmd: null,
  Volumes: null,
  WorkingDir: '',
  Entrypoint: null,
};

const HOST_CONFIG = {
  Binds: null,
  ContainerIDFile: '',
  LogConfig: { Type: '', Config: null },
  NetworkMode: '',
  PortBindings: null,
  RestartPolicy: { Name: '', MaximumRetryCount: 0 },
  AutoRemove: false,
  VolumeDriver: '',
  VolumesFrom: null,
  ConsoleSize: [0, 0],
  CapAdd: null,
  CapDrop: null,
  CgroupnsMode: '',
  Dns: null,
  DnsOptions: null,
  DnsSearch: null,
  ExtraHosts: null,
  GroupAdd: null,
  IpcMode: '',
  Cgroup: '',
  Links: null,
  OomScoreAdj: 0,
  PidMode: '',
  Privileged: false,
  PublishAllPorts: false,
  ReadonlyRootfs: false,
  SecurityOpt: null,
  UTSMode: '',
  UsernsMode: '',
  ShmSize: 0,
  Isolation: '',
  CpuShares: 0,
  Memory: 0,
  NanoCpus: 0,
  CgroupParent: '',
  BlkioWeight: 0,
  BlkioWeightDevice: null,
  BlkioDeviceReadBps: null,
  BlkioDeviceWriteBps: null,
  BlkioDeviceReadIOps: null,
  BlkioDeviceWriteIOps: null,
  CpuPeriod: 0,
  CpuQuota: 0,
  CpuRealtimePeriod: 0,
  CpuRealtimeRuntime: 0,
  CpusetCpus: '',
  CpusetMems: '',
  Devices: null,
  DeviceCgroupRules: null,
  DeviceRequests: null,
  MemoryReservation: 0,
  MemorySwap: 0,
  MemorySwappiness: null,
  OomKillDisable: null,
  PidsLimit: null,
  Ulimits: null,
  CpuCount: 0,
  CpuPercent: 0,
  IOMaximumIOps: 0,
  IOMaximumBandwidth: 0,
  MaskedPaths: null,
  ReadonlyPaths: null,
};

const pause = {
  ...CONFIG,
  Image: '{image}',
  Hostname: 'group',
  // The image of sandboxes sleeps; this one is told to.
  Cmd: ['sleep', '1000'],
  Labels: { [LABEL]: ALLOC },
  HostConfig: { ...HOST_CONFIG, NetworkMode: 'none', RestartPolicy: { Name: 'unless-stopped', MaximumRetryCount: 0 } },
  NetworkingConfig: null,
};

const RESOURCES = {
  CpuShares: 100,
  CpuPeriod: 100_000,
  CpuQuota: 50_000,
  CpusetCpus: '0',
  Memory: 64 * MIB,
  MemoryReservation: 32 * MIB,
  MemorySwap: 64 * MIB,
  MemorySwappiness: 0,
  PidsLimit: -1,
  Ulimits: [{ Name: 'nofile', Hard: 4096, Soft: 2048 }],
};

const task = {
  ...CONFIG,
  Image: '{image}',
  Cmd: ['sh', '-c', 'trap "exit 7" TERM; echo out; echo err >&2; while :; do sleep 0.1; done'],
  Env: ['NOMAD_ALLOC_DIR=/alloc', 'NOMAD_TASK_DIR=/local'],
  ExposedPorts: { '8080/tcp': {}, '8080/udp': {} },
  Labels: { [LABEL]: ALLOC, 'com.hashicorp.nomad.task_name': 'web' },
  HostConfig: {
    ...HOST_CONFIG,
    ...RESOURCES,
    Binds: ['{dir}:/alloc', '{dir}:/local', '{dir}:/secrets', '{dir}:/alloc/logs:ro'],
    LogConfig: { Type: 'json-file', Config: { 'max-file': '2', 'max-size': '2m' } },
    NetworkMode: 'default',
    PortBindings: {
      '8080/tcp': [{ HostIp: '127.0.0.1', HostPort: '23456' }],
      '8080/udp': [{ HostIp: '127.0.0.1', HostPort: '23456' }],
    },
    CapDrop: ['NET_RAW'],
    ExtraHosts: ['friend:203.0.113.7'],
    Dns: ['203.0.113.53'],
    Mounts: [
      {
        Type: 'bind',
        Source: '{dir}',
        Target: '/mounted',
        ReadOnly: true,
        BindOptions: { Propagation: 'rprivate' },
      },
      { Type: 'tmpfs', Target: '/memory', TmpfsOptions: { SizeBytes: MIB, Mode: 0o700 } },
      { Type: 'volume', Source: 'nomad', Target: '/volume', VolumeOptions: { NoCopy: true, Labels: { a: 'b' } } },
    ],
    Init: true,
    Sysctls: { 'net.core.somaxconn': '1024' },
  },
  NetworkingConfig: { EndpointsConfig: { default: { MacAddress: '02:42:ac:11:00:99' } } },
};

/** A task of a group whose tasks share the network of the sandbox. */
const sharing = {
  ...task,
  Cmd: ['sh', '-c', 'echo short; exit 3'],
  ExposedPorts: {},
  HostConfig: {
    ...task.HostConfig,
    NetworkMode: 'container:{pause}',
    PortBindings: {},
    ExtraHosts: null,
    Dns: null,
    Sysctls: null,
  },
  NetworkingConfig: null,
};

const filters = (value: unknown): string => `filters=${encodeURIComponent(JSON.stringify(value))}`;
const exec = { User: '', Privileged: false, Tty: false, AttachStdin: false, AttachStderr: true, AttachStdout: true };
const LOGS = 'follow=1&since=0.000000000&stderr=1&stdout=1&tail=';
const auth = { 'X-Registry-Auth': '' };

export const NOMAD_SCRIPT: readonly Step[] = [
  { method: 'HEAD', path: '/_ping' },
  get('/version'),
  get('/networks'),
  get('/info'),
  get(`/containers/json?${filters({ label: { [LABEL]: true } })}`),

  get('/images/{host}/nomad/none:1/json'),
  get('/containers/json?all=1'),
  post(`/containers/create?name=${PAUSE}`, pause, { capture: ['pause', 'Id'] }),
  get('/containers/json?all=1'),
  get('/containers/{pause}/json'),
  post('/containers/{pause}/start'),
  get('/containers/{pause}/json'),

  get('/images/{image}/json'),
  post('/images/create?fromImage={host}/test/busybox&tag=1.0', undefined, { headers: auth }),
  post('/images/create?fromImage={host}/nomad/none&tag=1', undefined, { headers: auth }),
  post(`/containers/create?name=${TASK}`, { ...task, Image: '{host}/nomad/none:1' }),
  post(`/containers/create?name=${TASK}`, task, { capture: ['task', 'Id'] }),
  post(`/containers/create?name=${TASK}`, task),
  get('/containers/json?all=1'),
  get('/containers/{task}/json'),
  post('/containers/{task}/start'),
  post('/containers/{task}/start'),
  get('/containers/{task}/json'),
  get('/containers/json'),
  get('/containers/{task}/stats?stream=0'),

  post('/containers/{task}/exec', { ...exec, Cmd: ['sh', '-c', 'id; exit 4'] }, { capture: ['exec', 'Id'] }),
  post('/exec/{exec}/start', { Detach: false, Tty: false }),
  get('/exec/{exec}/json'),
  post('/exec/{exec}/resize?h=20&w=80'),
  post('/containers/{task}/kill?signal=SIGUSR2NOPE'),
  post('/containers/{task}/kill?signal=SIGWINCH'),
  post('/containers/{task}/stop?t=5'),
  post('/containers/{task}/wait?condition=not-running'),
  get('/containers/{task}/json'),
  get(`/containers/{task}/logs?${LOGS}`),
  post('/containers/{task}/stop?t=0'),
  post('/containers/{task}/kill?signal=SIGTERM'),
  del('/containers/{task}?force=1'),
  get('/containers/{task}/json'),
  post('/containers/{task}/kill?signal=SIGTERM'),
  post('/containers/{task}/stop?t=0'),
  del('/containers/{task}?force=1'),

  post(`/containers/create?name=${TASK}`, sharing, { capture: ['task', 'Id'] }),
  post('/containers/{task}/start'),
  post('/containers/{task}/wait?condition=not-running'),
  get('/containers/{task}/json'),
  get(`/containers/{task}/logs?${LOGS}`),
  post('/containers/{task}/exec', { ...exec, Cmd: ['true'] }),
  del('/images/{image}?force=1&noprune=1'),
  del('/containers/{task}?force=1'),

  get(`/containers/json?${filters({ label: { [LABEL]: true } })}`),
  post('/containers/{pause}/stop?t=1'),
  del('/containers/{pause}?force=1'),
  get('/containers/json?all=1'),
  del('/images/{image}?force=1&noprune=1'),
  del('/images/{image}?force=1&noprune=1'),
  get('/images/json'),
  del('/volumes/nomad'),
];
