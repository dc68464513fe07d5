/** Query parameters of the wrong kind, out of range or malformed. `target` runs, `still` does not; neither may change. */

const f = (value: unknown): string => `filters=${encodeURIComponent(JSON.stringify(value))}`;
const WORDS = ['', 'x', '-1', '1.5', '99999999999999999999'];
const each = (values: readonly string[], query: (value: string) => string): string[] => values.map((value) => query(encodeURIComponent(value)));

/** Every filter of an endpoint with values that it may not have, and one that it does not know. */
const filters = (values: Readonly<Record<string, readonly unknown[]>>): string[] => [...Object.entries(values).flatMap(([key, list]) => list.map((value) => f({ [key]: value }))), f({ nope: ['1'] }), f([]), f('x'), f(5), f(null), f({ label: 'x' }), f({ label: [1] }), f({ label: { a: 'b' } }), 'filters={', 'filters=', f({ label: [] }), f({ label: [''] })];
const below = (path: string, queries: readonly string[]): string[] => queries.map((query) => `${path}?${query}`);

export const QUERIES: readonly string[] = [
  ...below('GET /containers/json', [...each(WORDS, (x) => `limit=${x}`), ...each(['x', 'no', 'False', 'none', '2'], (x) => `all=${x}`), ...filters({ status: [['nope'], ['running', 'nope'], ['']], health: [['nope']], exited: [['x'], ['-1'], ['0']], 'is-task': [['x'], ['true']], publish: [['x'], ['80/nope'], ['80'], ['80-70'], ['99999']], expose: [['x']], isolation: [['x']], before: [['nope'], ['target']], since: [['nope']], ancestor: [['nope'], ['UPPER']], network: [['nope']], volume: [['nope']], name: [['('], ['*']], id: [['(']] })]),
  ...below('GET /containers/target/logs', ['', 'stdout=x', ...each(['x', '-1', '1.5', '1.5.5', '1.', '.5', '2020-01-01', ''], (x) => `stdout=1&since=${x}`), ...each(['x', '-1', '1.123456789'], (x) => `stdout=1&until=${x}`), ...each(WORDS, (x) => `stdout=1&tail=${x}`), 'stdout=1&since=5&until=1']),
  ...below('GET /containers/target/stats', ['stream=0&one-shot=1']),
  ...below('GET /containers/target/top', ['ps_args=-x', 'ps_args=nope', 'ps_args=%3Bls']),
  ...below('GET /containers/target/archive', ['', 'path=', 'path=/nope', 'path=..', 'path=%00']),
  ...below('HEAD /containers/target/archive', ['', 'path=/nope']),
  ...below('POST /containers/target/resize', ['', 'h=1', 'h=x&w=1', 'h=-1&w=1', 'h=1&w=4294967296', 'h=1.5&w=1']),
  ...below('POST /containers/still/resize', ['h=1&w=1']),
  ...below('POST /containers/still/stop', each(WORDS, (x) => `t=${x}`)),
  ...below('POST /containers/still/kill', ['signal=NOPE', 'signal=0', 'signal=-1', 'signal=99', 'signal=TERM', 'signal=']),
  ...below('POST /containers/target/kill', ['signal=NOPE', 'signal=-1', 'signal=0', 'signal=99', 'signal=1.5']),
  ...below('POST /containers/still/wait', ['condition=not-running', 'condition=']),
  ...below('POST /containers/still/rename', ['', 'name=', 'name=-', 'name=a/b', 'name=target', 'name=/target', 'name=still', 'name=%00x']),
  ...below('POST /containers/target/attach', ['detachKeys=nope&stream=0', 'detachKeys=ctrl-&stream=0']),
  ...below('DELETE /containers/target', ['link=1', '']),
  ...below('POST /containers/prune', [f({ nope: ['1'] }), f({ until: ['x'] }), f({ until: ['1h', '2h'] }), 'filters=x']),
  ...below('GET /images/json', filters({ dangling: [['x'], ['true', 'false'], ['1']], before: [['nope'], ['UPPER']], since: [['nope']], reference: [['['], ['UPPER'], ['']], until: [['x']] })),
  ...below('GET /images/search', ['', 'term=', 'term=x&limit=0', 'term=x&limit=101', 'term=x&limit=x', `term=x&${f({ 'is-official': ['x'] })}`, `term=x&${f({ stars: ['x'] })}`, `term=x&${f({ nope: ['x'] })}`]),
  ...below('POST /images/prune', [f({ dangling: ['x'] }), f({ nope: ['1'] }), f({ until: ['x'] })]),
  ...below('POST /images/nope/tag', ['repo=', 'repo=a', 'repo=UPPER', '']),
  ...below('POST /images/{image}/tag', ['', 'repo=UPPER', 'repo=a&tag=-bad', 'repo=a&tag=a/b', 'repo=sha256', 'repo=a:b&tag=c:d']),
  ...below('POST /images/create', ['fromImage=UPPER', 'fromImage=a&platform=nope/nope/nope/nope', 'fromSrc=nope', 'fromImage=a&tag=sha256:x', 'fromSrc=-&repo=UPPER', 'fromSrc=-&changes=NOPE']),
  ...below('GET /images/get', ['names=nope', 'names=UPPER']),
  ...below('DELETE /images/UPPER', ['']),
  ...below('GET /networks', filters({ type: [['nope'], ['builtin', 'nope'], ['custom']], dangling: [['x'], ['true']], driver: [['nope']], scope: [['nope']], id: [['(']], name: [['(']] })),
  ...below('GET /networks/bridge', ['verbose=x', 'verbose=', 'verbose=T', 'scope=nope', 'scope=local', 'scope=swarm']),
  ...below('POST /networks/prune', [f({ nope: ['1'] }), f({ until: ['x'] }), f({ until: ['1h', '2h'] })]),
  ...below('GET /volumes', filters({ dangling: [['x'], ['true', 'false']], name: [['(']], driver: [['nope']] })),
  ...below('POST /volumes/prune', [f({ nope: ['1'] }), f({ label: [1] })]),
  ...below('DELETE /volumes/nope', ['', 'force=x', 'force=0']),
  ...below('GET /events', ['since=x&until=1', 'since=1&until=x', 'since=20&until=10', 'since=1.5&until=2', 'since=-1&until=1', 'since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z', ...filters({ type: [['nope']], event: [['nope']] }).map((query) => `since=0&until=1&${query}`)]),
  ...below('GET /system/df', ['type=nope', 'type=container']),
  ...below('POST /commit', ['', 'container=', 'container=nope', 'container=still&repo=UPPER', 'container=still&repo=a&changes=NOPE%20x', 'container=still&repo=a&tag=-']),
  ...below('POST /build', ['memory=x', 'version=nope', 'buildargs=x', 'shmsize=x', 'labels=x', 'ulimits=x', 'cachefrom=x', 'platform=a/b/c/d', 'remote=nope', 'outputs=x']),
  ...below('POST /build/prune', ['keep-storage=x', f({ nope: ['1'] }), 'filters=x']),
  ...below('POST /auth', ['']),
  'GET /containers/%20/json', 'GET /containers//json', 'GET /containers/a%2Fb/json', 'GET /networks/%20', 'GET /volumes/%2e%2e', 'GET /exec/%00/json', 'GET /images/%00/json', 'POST /exec/nope/resize?h=1&w=1', 'GET /containers/json?%zz', 'GET /containers/json?all=%ff',
];
