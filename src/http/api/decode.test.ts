import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { decodeCreate } from './container-create.js';
import { decodeUpdate } from './container-update.js';
import { humanDuration } from './container-view.js';
import { parseFilters } from './filters.js';
import { parseInstant, untilOf } from './until.js';
import { healthcheck } from './healthcheck.js';

const newest = (): boolean => true;
const older =
  (than: number) =>
  (_major: number, minor: number): boolean =>
    minor < than;

test('a create body gets its defaults, whatever the case of its keys', () => {
  const request = decodeCreate(
    { image: 'busybox', CMD: 'echo hi', hostconfig: { memory: 1024, PidsLimit: -1 }, Unknown: 1 },
    { name: 'web' },
    newest,
  );
  assert.equal(request.config.Image, 'busybox');
  assert.deepEqual(request.config.Cmd, ['echo hi']);
  assert.equal(request.hostConfig.Memory, 1024);
  assert.equal(request.hostConfig.PidsLimit, null);
  assert.equal(request.hostConfig.NetworkMode, '');
  assert.deepEqual(request.config.Labels, {});
  assert.equal(request.config.Env, null);
  assert.ok(!('Unknown' in request.config) && !('ExposedPorts' in request.config));
});

test('a wrong type is refused and names its field', () => {
  const bad: [unknown, RegExp][] = [
    [{ Image: 1 }, /field Image must be a string/],
    [{ Image: 'x', Tty: 'yes' }, /field Tty must be a boolean/],
    [{ Image: 'x', Env: ['A', 1] }, /field Env\[1\] must be a string/],
    [{ Image: 'x', HostConfig: { Memory: '64m' } }, /field HostConfig.Memory must be a 64-bit integer, not string/],
    [{ Image: 'x', HostConfig: { Memory: 1.5 } }, /field HostConfig.Memory must be a 64-bit integer, not 1.5/],
    [{ Image: 'x', HostConfig: { Memory: 1e30 } }, /field HostConfig.Memory/],
    [{ Image: 'x', HostConfig: { BlkioWeight: 70_000 } }, /BlkioWeight must be an unsigned 16-bit integer, not 70000/],
    [{ Image: 'x', HostConfig: { Binds: ['/a\0b:/c'] } }, /field HostConfig.Binds\[0\] contains a NUL character/],
    [{ Image: 'x', ExposedPorts: { '80/tcp': [] } }, /field ExposedPorts.80\/tcp must be an object, not array/],
    [{ Image: 'x', NetworkingConfig: { EndpointsConfig: { a: null } } }, /no EndpointSettings for a/],
    [
      { Image: 'x', NetworkingConfig: { EndpointsConfig: { a: { IPPrefixLen: '1' } } } },
      /EndpointsConfig.a.IPPrefixLen must be a 64-bit integer/,
    ],
    [
      { Image: 'x', HostConfig: { PortBindings: { '80/tcp': [{ HostPort: 80 }] } } },
      /PortBindings.80\/tcp\[0\].HostPort/,
    ],
    [{ Image: 'x', Labels: ['a'] }, /field Labels must be an object/],
    [{ Image: 'x', image: 'y' }, /field Image is given in two spellings/],
    [{ Image: 'x', HostConfig: { Privileged: true, privileged: null } }, /HostConfig.Privileged is given in two spell/],
    [{ Image: 'x', HostConfig: {}, 'Ho\u017ftConfig': { Privileged: true } }, /field HostConfig is given in two spell/],
    [[], /field body must be an object/],
    [null, /config cannot be empty/],
    [
      { Image: 'x', HostConfig: { Mounts: [{ Type: 'bogus', Target: '/x' }] } },
      /invalid mount config for type "bogus": mount type unknown/,
    ],
    [
      { Image: 'x', HostConfig: { Mounts: [{ Type: 'bind', Target: '/x', VolumeOptions: {} }] } },
      /VolumeOptions must not be specified on mount type "bind"/,
    ],
  ];
  for (const [body, pattern] of bad) {
    assert.throws(
      () => decodeCreate(body, {}, newest),
      (error) => isEngineError(error, 'invalid') && pattern.test(error.message),
      JSON.stringify(body),
    );
  }
});

test('the largest number stays one that clients can read', () => {
  const { hostConfig } = decodeCreate(
    JSON.parse('{"Image":"x","HostConfig":{"Memory":9223372036854775807}}'),
    {},
    newest,
  );
  assert.ok(BigInt(JSON.stringify(hostConfig.Memory)) < 2n ** 63n);
});

test('an update has what it may change; processes may be without limit again', () => {
  const body = {
    Memory: 0,
    CpuShares: 5,
    PidsLimit: -1,
    Ulimits: [{ Name: 'nofile', Soft: 1, Hard: 1 }],
    RestartPolicy: { Name: '' },
  };
  assert.deepEqual(decodeUpdate(body, newest), { CpuShares: 5, PidsLimit: 0 });
  assert.deepEqual(decodeUpdate(body, older(39)), { CpuShares: 5 });
  assert.throws(() => decodeUpdate({ Ulimits: 5 }, newest), /field Ulimits must be an array/);
});

test('a MAC address of the container becomes that of its endpoint; older clients know no other', () => {
  const address = '02:42:ac:11:00:99';
  const create = (
    networkMode: string,
    own: string,
    is: ReturnType<typeof older> = newest,
  ): ReturnType<typeof decodeCreate> =>
    decodeCreate(
      {
        Image: 'x',
        MacAddress: address,
        HostConfig: { NetworkMode: networkMode },
        NetworkingConfig: { EndpointsConfig: { web: { MacAddress: own } } },
      },
      {},
      is,
    );
  const placed = create('web', '');
  assert.deepEqual(
    [placed.endpoints['web']?.MacAddress, placed.config.MacAddress, placed.warnings.length],
    [address, undefined, 1],
  );
  assert.throws(() => create('', ''), /NetworkMode must match the identity of a network/);
  assert.equal(
    decodeCreate({ Image: 'x', MacAddress: address }, {}, () => true).endpoints['bridge']?.MacAddress,
    address,
  );
  assert.throws(() => create('web', '02:42:ac:11:00:98'), /must match the endpoint-specific MAC address/);
  assert.deepEqual(
    [create('web', '02:42:ac:11:00:98', older(44)).endpoints['web']?.MacAddress, create('web', '', older(44)).warnings],
    [address, []],
  );
  assert.throws(() => create('host', '', older(44)), /conflicting options: mac-address and the network mode/);
});

test('older API versions lose what they did not know', () => {
  const stray = {
    Image: 'x',
    HostConfig: { Mounts: [{ Type: 'bind', Source: '/a', Target: '/x', TmpfsOptions: {} }] },
  };
  assert.deepEqual(decodeCreate(stray, {}, older(41)).hostConfig.Mounts, [
    { Type: 'bind', Source: '/a', Target: '/x' },
  ]);
  const body = {
    Image: 'x',
    HostConfig: { AutoRemove: true, Annotations: { a: 'b' }, ConsoleSize: [24, 80] },
    NetworkingConfig: { EndpointsConfig: { a: {}, b: {} } },
  };
  assert.throws(() => decodeCreate(body, {}, older(44)), /multiple network endpoints: a, b/);
  const old = decodeCreate({ ...body, NetworkingConfig: null }, {}, older(25));
  assert.equal(old.hostConfig.AutoRemove, false);
  assert.equal(old.hostConfig.Annotations, undefined);
  assert.deepEqual(old.hostConfig.ConsoleSize, [0, 0]);
});

test('filters in both forms, and nothing else', () => {
  assert.deepEqual(parseFilters('{"name":{"a":true}}').get('name'), ['a']);
  assert.deepEqual(parseFilters('{"name":["a","b"]}').get('name'), ['a', 'b']);
  assert.equal(parseFilters(undefined).size, 0);
  for (const bad of ['{', '[]', '"x"', '{"a":1}', '{"a":["b",1]}', '{"a":{"b":"c"}}', '{"a":[true]}'])
    assert.throws(() => parseFilters(bad), /invalid filter/, bad);
  assert.throws(() => parseFilters('{"zz":["1"]}').allow(['name']), /invalid filter 'zz'/);
  assert.equal(parseFilters('{"label":["a=b=c","d"]}').matchesLabels({ a: 'b=c', d: '' }), true);
  assert.equal(parseFilters('{"label":["a"]}').matchesLabels({}), false);
  assert.equal(parseFilters('{"name":["^/we"]}').matchesPattern('name', '/web'), true);
  assert.equal(parseFilters('{"name":["("]}').matchesPattern('name', '/web'), false);
});

test('each value of a filter that is there twice has the form of all, and the last one counts', () => {
  const values = (text: string): readonly string[] => parseFilters(text).get('label');
  assert.deepEqual(values('{"label":["a"],"label":["b"]}'), ['b']);
  assert.deepEqual(values('{"label":{"a":true}, "label" : {"b":true}}'), ['b']);
  assert.deepEqual(values('{"label":["a"],"label":null}'), []);
  assert.deepEqual(values('{"label":{"a":true},"label":{"7 b\\":":true,"7 c":null}}'), ['7 b":', '7 c']);
  assert.deepEqual(values('{"label":["a\\":","0 b"]}'), ['a":', '0 b']);
  for (const bad of [
    '{"label":["a"],"label":{"b":true}}',
    '{"label":{"b":true},"label":["a"]}',
    '{"label":[],"l\\u0061bel":{"b":true}}',
    '{"label":["a"],"label":null,"name":{"b":true}}',
    '{"label":1,"label":{"b":true}}',
    '{"label":[1],"label":["b"]}',
    '{"label":{"b":1,"b":true}}',
    '{"label":{"b":1},"label":{"b":true}}',
    '{"label":["a"],"label":["b"]} "c":',
    '{"label":["a","b":]}',
  ])
    assert.throws(() => parseFilters(bad), /invalid filter/, bad);
});

test('a boolean filter has a value', () => {
  assert.equal(parseFilters('{}').flag('dangling'), undefined);
  assert.equal(parseFilters('{"dangling":["0"]}').flag('dangling'), false);
  assert.throws(() => parseFilters('{"dangling":[]}').flag('dangling'), /invalid filter 'dangling'/);
});

test('bounds of time', () => {
  const now = 1_000_000_000_000;
  const cases: [string, number][] = [
    ['1.5', 1500],
    ['1h30m', now - 5_400_000],
    ['.5h', now - 1_800_000],
    ['1.h', now - 3_600_000],
    ['-1h', now + 3_600_000],
    ['2030-01-01T05:00:00.5+01:00', Date.UTC(2030, 0, 1, 4, 0, 0, 500)],
    ['2030-01-01Z', Date.UTC(2030, 0, 1)],
    ['2030-01-01T05', new Date(2030, 0, 1, 5).getTime()],
    ['2030-01-01', new Date(2030, 0, 1).getTime()],
  ];
  for (const [text, wanted] of cases) assert.equal(parseInstant(text, now), wanted, text);
  for (const bad of ['', '-1', '1d', '.h', '2030-13-01', '2030-01-01 5', '2030-01-01T5'])
    assert.throws(() => parseInstant(bad, now), /failed to parse/, bad);
  assert.equal(untilOf(parseFilters('{}'), now), undefined);
  assert.throws(() => untilOf(parseFilters('{"until":[]}'), now), /invalid filter 'until'/);
});

test('members that mean the same when they are zero stay out', () => {
  const given = { Interval: 0, StartPeriod: 0, Retries: 3, Test: [] };
  assert.deepEqual(healthcheck.decode(given, 'Healthcheck'), { Test: [], Retries: 3 });
});

test('durations in the words that scripts parse', () => {
  const second = 1000;
  const hour = 3600 * second;
  const cases: [number, string][] = [
    [500, 'Less than a second'],
    [second, '1 second'],
    [59 * second, '59 seconds'],
    [60 * second, 'About a minute'],
    [120 * second, '2 minutes'],
    [60 * 60 * second, 'About an hour'],
    [89 * 60 * second, 'About an hour'],
    [2 * hour, '2 hours'],
    [47 * hour, '47 hours'],
    [48 * hour, '2 days'],
    [14 * 24 * hour, '2 weeks'],
    [60 * 24 * hour, '2 months'],
    [800 * 24 * hour, '2 years'],
  ];
  for (const [ms, text] of cases) assert.equal(humanDuration(ms), text);
});
