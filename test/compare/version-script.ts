/** These requests are compared in every version of the API: answers, or what is taken, changed in some of them. */
import type { Step } from './script.js';

const CREATE = '/containers/create';
const platforms = (...all: readonly object[]): string =>
  all.map((platform) => `platforms=${encodeURIComponent(JSON.stringify(platform))}`).join('&');
const HOST = { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch };

const get = (path: string): Step => ({ method: 'GET', path });
const post = (path: string, json?: unknown, capture?: Step['capture']): Step => ({
  method: 'POST',
  path,
  ...(json === undefined ? {} : { json }),
  ...(capture === undefined ? {} : { capture }),
});
const del = (path: string): Step => ({ method: 'DELETE', path });

const WEB = {
  Image: '{image}',
  Cmd: ['sleep', '100000'],
  Labels: { a: 'b' },
  ExposedPorts: { '80/tcp': {} },
  Healthcheck: { Test: ['CMD', 'true'], Interval: 1_000_000_000_000, StartInterval: 1_000_000_000 },
  HostConfig: {
    NetworkMode: 'versions',
    PortBindings: { '80/tcp': [{ HostPort: '' }] },
    Memory: 64_000_000,
    Annotations: { a: 'b' },
    Mounts: [
      { Type: 'volume', Source: 'versions', Target: '/data' },
      { Type: 'tmpfs', Target: '/run', TmpfsOptions: { SizeBytes: 1_000_000 } },
    ],
  },
  NetworkingConfig: { EndpointsConfig: { versions: { Aliases: ['site'], GwPriority: 1 } } },
};

/** Everything that one version is asked for; what is made is taken away, so that the next finds the same. */
export const VERSION_SCRIPT: readonly Step[] = [
  get('/_ping'),
  get('/version'),
  get('/info'),
  post('/networks/create', { Name: 'versions', EnableIPv4: true }),
  get('/networks'),
  get('/networks/versions'),
  post('/volumes/create', { Name: 'versions' }),
  post(`${CREATE}?name=web`, WEB),
  post('/containers/web/start'),
  get('/containers/json'),
  get('/containers/json?size=1'),
  get('/containers/web/json'),
  get('/containers/web/stats?stream=0'),
  get('/containers/web/logs?stdout=1'),
  get('/containers/web/top'),
  post('/containers/web/exec', { Cmd: ['true'], ConsoleSize: [1, 2] }, ['exec', 'Id']),
  get('/exec/{exec}/json'),
  post('/containers/web/update', { Memory: 80_000_000, MemorySwap: -1 }),
  post('/containers/web/stop?t=0&signal=KILL'),
  post('/containers/web/wait'),
  get('/containers/web/json'),
  get('/images/json'),
  get('/images/json?shared-size=1&manifests=1'),
  get('/images/{image}/json'),
  get('/images/{image}/json?manifests=1'),
  get('/images/{image}/json?platform={}'),
  get('/images/{image}/history'),
  get('/images/{image}/history?platform={}'),
  get('/images/get?names={image}&platform={}'),
  get('/distribution/{image}/json'),
  post('/commit?container=web&repo=versions/made&tag=1', {}),
  get('/images/versions/made:1/json'),
  del(`/images/versions/made:1?${platforms({ os: 'linux' })}`),
  del(`/images/versions/made:1?${platforms(HOST, HOST)}`),
  del(`/images/versions/made:1?${platforms({ ...HOST, os: 'plan9' })}`),
  del(`/images/versions/made:1?${platforms(HOST)}`),
  get('/volumes'),
  get('/volumes/versions'),
  get('/system/df'),
  get('/system/df?type=image'),
  get('/events?since=0&until=1'),
  get('/plugins'),
  del('/containers/web?force=1'),
  post(CREATE, { ...WEB, HostConfig: { Mounts: [{ Type: 'image', Source: '{image}', Target: '/image' }] } }),
  post(CREATE, {
    ...WEB,
    HostConfig: { Mounts: [{ Type: 'volume', Source: 'v', Target: '/v', VolumeOptions: { Subpath: 'a' } }] },
  }),
  post(CREATE, { ...WEB, MacAddress: '02:42:ac:11:00:07' }),
  post(CREATE, { ...WEB, HostConfig: { NetworkMode: 'versions', Sysctls: { 'net.ipv4.conf.eth0.forwarding': '1' } } }),
  post(`${CREATE}?name=kernel-memory`, { ...WEB, HostConfig: { KernelMemory: 5_000_000 } }),
  post(CREATE, {
    ...WEB,
    HostConfig: {},
    NetworkingConfig: { EndpointsConfig: { versions: {}, bridge: {} } },
  }),
  post('/volumes/prune'),
  post('/containers/prune'),
  del('/volumes/versions'),
  del('/networks/versions'),
  post('/volumes/prune?filters={"all":["true"]}'),
];
