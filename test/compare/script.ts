/** The requests that are compared: what clients do in the life of images, containers, execs, networks and volumes, and what they do wrong. */

export interface Step {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  /** Below /v1.41; `{name}` stands for a value that an earlier step captured. */
  readonly path: string;
  readonly json?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as it is. */
  readonly body?: string;
  /** Member of the JSON answer that is kept under this name. */
  readonly capture?: readonly [name: string, member: string];
  /** Repeated until the status is not this one: for what a container needs a moment to reach. */
  readonly whileStatus?: number;
}

const get = (path: string, more: Partial<Step> = {}): Step => ({ method: 'GET', path, ...more });
const head = (path: string): Step => ({ method: 'HEAD', path });
const post = (path: string, json?: unknown, more: Partial<Step> = {}): Step => ({ method: 'POST', path, ...(json === undefined ? {} : { json }), ...more });
const del = (path: string): Step => ({ method: 'DELETE', path });

const filters = (value: unknown): string => `filters=${encodeURIComponent(JSON.stringify(value))}`;
const create = (name: string, body: Record<string, unknown>, capture = name): Step => post(`/containers/create?name=${name}`, { Image: '{image}', ...body }, { capture: [capture, 'Id'] });

const SYSTEM: readonly Step[] = [get('/_ping'), head('/_ping'), get('/version'), get('/info'), get('/system/df'), get('/nope'), post('/nope'), get(`/events?since=0&until=1`), get('/events?until=x'), get(`/events?since=0&until=1&${filters({ type: ['container'] })}`), get('/events?filters=x'), get('/auth'), get('/plugins'), get('/swarm'), get('/services'), get('/nodes'), post('/swarm/leave'), post('/build/prune')];

const IMAGES: readonly Step[] = [
  get('/images/json'), get('/images/json?all=1&digests=1'), get(`/images/json?${filters({ dangling: ['false'] })}`), get(`/images/json?${filters({ reference: ['*busybox*'] })}`), get(`/images/json?${filters({ label: ['flavour'] })}`),
  get(`/images/json?${filters({ nope: ['x'] })}`), get('/images/json?filters=x'), get(`/images/json?${filters({ dangling: ['maybe'] })}`), get('/images/{image}/json'), get('/images/{image}/history'), get('/images/nope/json'), get('/images/nope/history'),
  post('/images/{image}/tag?repo=compare/copy&tag=1'), post('/images/{image}/tag?repo=Compare'), post('/images/nope/tag?repo=compare/copy'), get('/images/compare/copy:1/json'), del('/images/compare/copy:1'), del('/images/nope'),
  post('/images/create?fromImage={host}/nope/nope&tag=1'), post('/images/create?fromImage={host}/test/busybox&tag=1.0'), post('/images/create?fromImage=UPPER'), post('/images/create'), post(`/images/prune?${filters({ dangling: ['true'] })}`), post(`/images/prune?${filters({ nope: ['1'] })}`),
  get('/images/search?term=x&limit=1000'), get('/distribution/{image}/json'), get('/images/get?names={image}'), get('/images/nope/get'), post('/images/load', undefined, { body: 'this is no archive', headers: { 'Content-Type': 'application/x-tar' } }), post('/images/nope/push?tag=1', undefined, { headers: { 'X-Registry-Auth': 'e30=' } }),
];

const BAD_CONTAINERS: readonly Step[] = [
  post('/containers/create', { Image: 'nope' }), post('/containers/create', { Image: '{image}', Cmd: 5 }), post('/containers/create', {}), post('/containers/create?name=-bad', { Image: '{image}' }),
  post('/containers/create', undefined, { body: '{', headers: { 'Content-Type': 'application/json' } }), post('/containers/create', undefined, { body: '{}', headers: { 'Content-Type': 'text/plain' } }), post('/containers/create'),
  post('/containers/create', { Image: '{image}', HostConfig: { Memory: 1000 } }), post('/containers/create', { Image: '{image}', HostConfig: { Memory: 64000000, MemorySwap: 1 } }), post('/containers/create', { Image: '{image}', HostConfig: { Binds: ['relative:/x'] } }),
  post('/containers/create', { Image: '{image}', HostConfig: { Binds: ['/a:b'] } }), post('/containers/create', { Image: '{image}', HostConfig: { CapAdd: ['NOPE'] } }), post('/containers/create', { Image: '{image}', HostConfig: { Runtime: 'nope' } }),
  post('/containers/create', { Image: '{image}', HostConfig: { NetworkMode: 'container:nope' } }), post('/containers/create', { Image: '{image}', HostConfig: { LogConfig: { Type: 'nope' } } }), post('/containers/create', { Image: '{image}', HostConfig: { LogConfig: { Type: 'json-file', Config: { nope: '1' } } } }),
  post('/containers/create', { Image: '{image}', HostConfig: { RestartPolicy: { Name: 'nope' } } }), post('/containers/create', { Image: '{image}', HostConfig: { AutoRemove: true, RestartPolicy: { Name: 'always' } } }), post('/containers/create', { Image: '{image}', HostConfig: { PortBindings: { 'x/tcp': [{}] } } }),
  post('/containers/create', { Image: '{image}', HostConfig: { Mounts: [{ Type: 'nope', Target: '/x' }] } }), post('/containers/create', { Image: '{image}', HostConfig: { Mounts: [{ Type: 'bind', Source: '/nope/nope', Target: '/x' }] } }), post('/containers/create', { Image: '{image}', HostConfig: { VolumesFrom: ['nope'] } }),
  post('/containers/create', { Image: '{image}', StopSignal: 'NOPE' }), post('/containers/create', { Image: '{image}', Healthcheck: { Test: ['NOPE'] } }), post('/containers/create', { Image: '{image}', Env: ['=x'] }), post('/containers/create', { Image: '{image}', WorkingDir: 'relative' }),
  post('/containers/create', { Image: '{image}', HostConfig: { Ulimits: [{ Name: 'nope', Soft: 1, Hard: 1 }] } }), post('/containers/create', { Image: '{image}', HostConfig: { ShmSize: -1 } }), post('/containers/create', { Image: '{image}', HostConfig: { IpcMode: 'nope' } }), post('/containers/create', { Image: '{image}', HostConfig: { PidMode: 'nope' } }),
  post('/containers/create', { Image: '{image}', HostConfig: { CpuShares: 1, NanoCpus: 10_000_000_000_000 } }), post('/containers/create', { Image: '{image}', HostConfig: { CpusetCpus: '99' } }), post('/containers/create', { Image: '{image}', HostConfig: { SecurityOpt: ['nope'] } }),
];

const LOOP = { Cmd: ['sh', '-c', 'trap "exit 7" TERM; echo out; echo err >&2; while :; do sleep 0.1; done'], Labels: { 'compare.role': 'main' }, Env: ['A=1'], ExposedPorts: { '80/tcp': {} }, HostConfig: { PortBindings: { '80/tcp': [{ HostPort: '' }] }, Memory: 64_000_000, Binds: ['data:/data'] } };

const CONTAINERS: readonly Step[] = [
  get('/containers/json'), create('first', LOOP), create('first', LOOP, 'again'), get('/containers/json'), get('/containers/json?all=1&size=1'), get('/containers/first/json'), get('/containers/first/json?size=1'), get('/containers/nope/json'),
  get('/containers/first/logs?stdout=1'), get('/containers/first/logs'), get('/containers/nope/logs?stdout=1'), get('/containers/first/top'), get('/containers/first/changes'), post('/containers/first/start'), post('/containers/first/start'), post('/containers/nope/start'),
  get('/containers/json'), get(`/containers/json?${filters({ status: ['running'] })}`), get(`/containers/json?${filters({ status: ['nope'] })}`), get(`/containers/json?${filters({ nope: ['x'] })}`), get(`/containers/json?${filters({ name: ['first'], label: ['compare.role=main'] })}`), get('/containers/json?limit=1&all=1'), get('/containers/json?before=nope'),
  get('/containers/first/json'), get('/containers/first/top'), get('/containers/first/top?ps_args=aux'), get('/containers/first/stats?stream=0'), get('/containers/first/stats?stream=0&one-shot=1'), get('/containers/nope/stats?stream=0'), get('/containers/first/logs?stdout=1&stderr=1&timestamps=1&tail=1'), get('/containers/first/logs?stdout=1&since=x'), get('/containers/first/logs?stdout=1&tail=x'),
  post('/containers/first/pause'), post('/containers/first/pause'), get('/containers/first/json'), post('/containers/first/unpause'), post('/containers/first/unpause'), post('/containers/first/resize?h=20&w=20'), post('/containers/first/resize?h=x&w=20'), post('/containers/first/update', { Memory: 80_000_000, MemorySwap: -1 }), post('/containers/first/update', { Memory: 1 }), post('/containers/first/update', { RestartPolicy: { Name: 'nope' } }),
  post('/containers/first/rename?name=second'), post('/containers/second/rename?name='), post('/containers/second/rename?name=-x'), post('/containers/nope/rename?name=x'), post('/containers/second/kill?signal=NOPE'), post('/containers/second/kill?signal=USR1'),
  get('/containers/second/changes'), get('/containers/second/export'), get('/containers/nope/export'), head('/containers/second/archive?path=/etc'), get('/containers/second/archive?path=/etc/motd'), get('/containers/second/archive?path=/nope'), get('/containers/second/archive'), { method: 'PUT', path: '/containers/second/archive?path=/nope', body: '', headers: { 'Content-Type': 'application/x-tar' } },
  del('/containers/second'), post('/containers/second/stop?t=5'), post('/containers/second/stop'), get('/containers/second/json'), post('/containers/second/wait'), post('/containers/second/wait?condition=nope'), post('/containers/nope/wait'), post('/containers/second/kill'), post('/containers/second/restart?t=1'), post('/containers/second/restart?t=x'), post('/containers/second/stop?t=1'), post('/commit?container=second&repo=compare/made&tag=1&comment=c', {}), post('/commit?container=nope'), get('/images/compare/made:1/json'), get('/images/compare/made:1/history'), del('/images/compare/made:1'),
  create('quick', { Cmd: ['true'] }), post('/containers/quick/start'), post('/containers/quick/wait'), get('/containers/quick/json'), create('absent', { Cmd: ['/nope'] }), post('/containers/absent/start'), get('/containers/absent/json'), del('/containers/absent?v=1'), del('/containers/nope'), post('/containers/nope/stop'), post('/containers/nope/attach?stream=0'), get('/containers/fi*/json'),
];

const EXECS: readonly Step[] = [
  post('/containers/second/start'), post('/containers/second/exec', { Cmd: ['true'] }, { capture: ['exec', 'Id'] }), get('/exec/{exec}/json'), post('/exec/{exec}/start', { Detach: true }), get('/exec/{exec}/json'), post('/exec/{exec}/start', { Detach: true }), get('/exec/nope/json'), post('/exec/nope/start', {}), post('/containers/second/exec', {}), post('/containers/second/exec', { Cmd: [] }), post('/containers/nope/exec', { Cmd: ['true'] }), post('/exec/{exec}/resize?h=1&w=1'), post('/containers/quick/exec', { Cmd: ['true'] }), post('/containers/second/exec', { Cmd: ['true'], WorkingDir: 'x' }),
];

const NETWORKS: readonly Step[] = [
  get('/networks'), get('/networks/bridge'), get('/networks/none'), get('/networks/nope'), post('/networks/create', { Name: 'compare', Labels: { a: 'b' }, IPAM: { Config: [{ Subnet: '10.231.7.0/24', Gateway: '10.231.7.1' }] } }, { capture: ['network', 'Id'] }), post('/networks/create', { Name: 'compare', CheckDuplicate: true }), post('/networks/create', { Name: '' }), post('/networks/create', { Name: 'x', Driver: 'nope' }), post('/networks/create', { Name: 'x', IPAM: { Config: [{ Subnet: 'x' }] } }), post('/networks/create', { Name: 'bridge' }), post('/networks/create', { Name: 'y', IPAM: { Config: [{ Subnet: '10.231.7.0/24' }] } }),
  get('/networks/compare'), get('/networks/{network}?verbose=1'), get(`/networks?${filters({ name: ['compare'] })}`), get(`/networks?${filters({ type: ['custom'] })}`), get(`/networks?${filters({ nope: ['x'] })}`), post('/networks/compare/connect', { Container: 'second', EndpointConfig: { Aliases: ['alias'], IPAMConfig: { IPv4Address: '10.231.7.9' } } }), post('/networks/compare/connect', { Container: 'second' }), post('/networks/compare/connect', { Container: 'nope' }), get('/networks/compare'), get('/containers/second/json'), del('/networks/compare'), post('/networks/compare/disconnect', { Container: 'second' }), post('/networks/compare/disconnect', { Container: 'second' }), del('/networks/compare'), del('/networks/nope'), del('/networks/bridge'), post(`/networks/prune?${filters({ label: ['none'] })}`),
];

const VOLUMES: readonly Step[] = [
  get('/volumes'), post('/volumes/create', { Name: 'compare', Labels: { a: 'b' } }), post('/volumes/create', { Name: 'compare' }), post('/volumes/create', {}), post('/volumes/create', { Name: '-' }), post('/volumes/create', { Name: 'x', Driver: 'nope' }), post('/volumes/create', { Name: 'x', DriverOpts: { nope: '1' } }), get('/volumes/compare'), get('/volumes/nope'), get(`/volumes?${filters({ name: ['compare'] })}`), get(`/volumes?${filters({ dangling: ['true'] })}`), get(`/volumes?${filters({ nope: ['x'] })}`), get('/volumes/data'), del('/volumes/data'), del('/volumes/compare'), del('/volumes/nope'), post('/volumes/prune'), get('/system/df'),
];

const END: readonly Step[] = [del('/containers/second?force=1&v=1'), post(`/containers/prune?${filters({ label: ['none'] })}`), post('/containers/prune'), get('/containers/json?all=1'), del('/volumes/data'), del('/images/{image}'), get('/images/json')];

export const SCRIPT: readonly Step[] = [...SYSTEM, ...IMAGES, ...BAD_CONTAINERS, ...CONTAINERS, ...EXECS, ...NETWORKS, ...VOLUMES, ...END];
