import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { totalmem, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import type { ContainerUsage } from '../ports/stats.js';
import { parseHostCpu, parseNetDev } from './counters.js';
import { unpackUsages } from './packed-usages.js';
import { groupsOf, readStats, type StatsBatch } from './reader.js';

const ID = 'ab'.repeat(32);
let root: string;

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'engined-stats-'));
});

after(() => rm(root, { recursive: true }));

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, name)), { recursive: true });
    await writeFile(join(root, name), content);
  }
}

/** As the main thread gets them. */
function read(batch: StatsBatch): (ContainerUsage | undefined)[] {
  return unpackUsages(readStats(batch));
}

/** The group of this process, which the reader asks the kernel for: files are put where it will look. */
async function ownGroup(): Promise<(controller: string) => string | undefined> {
  return groupsOf(await readFile('/proc/self/cgroup', 'utf8'), ID);
}

test('cgroup v2: the files of the kernel become counters in the units of the API', async () => {
  const path = join('unified', (await ownGroup())('') ?? '/');
  await write({
    [`${path}/cpu.stat`]:
      'usage_usec 9007199254740993\nuser_usec 5\nsystem_usec 2\nnr_periods 3\nnr_throttled 1\nthrottled_usec 40\n',
    [`${path}/memory.stat`]: 'anon 100\nfile 200\ninactive_file 50\nsomething_new 7\n',
    [`${path}/memory.current`]: '300\n',
    [`${path}/memory.max`]: 'max\n',
    [`${path}/memory.events`]: 'low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\n',
    [`${path}/io.stat`]:
      '8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n253:1 rbytes=5 wbytes=0 rios=1 wios=0\n',
    [`${path}/pids.current`]: '2\n',
    [`${path}/pids.max`]: 'max\n',
  });
  const gone = 2 ** 22 + 1;
  const [usage, none] = read({
    mounts: { controllers: new Map(), unified: join(root, 'unified') },
    targets: [process.pid, gone].map((pid) => ({ id: ID, pid, usesHostNetwork: true })),
  });
  assert.ok(usage);
  assert.equal(none, undefined);
  assert.equal(usage.cpu.totalNs, 9007199254740993000n);
  assert.deepEqual([usage.cpu.userNs, usage.cpu.kernelNs, usage.cpu.perCpuNs], [5000n, 2000n, undefined]);
  assert.deepEqual(usage.cpu.throttling, { periods: 3n, throttledPeriods: 1n, throttledNs: 40_000n });
  assert.deepEqual([usage.memory.usage, usage.memory.failcnt, usage.memory.limit], [300n, 2n, BigInt(totalmem())]);
  const { names, values } = usage.memory.stats;
  assert.deepEqual(
    ['inactive_file', 'slab', 'something_new'].map((name) => values[names.indexOf(name)]),
    [50n, 0n, undefined],
  );
  assert.deepEqual(
    usage.blockIo.io_service_bytes_recursive?.map(({ major, minor, op, value }) => `${major}:${minor} ${op} ${value}`),
    ['8:0 read 10', '8:0 write 20', '253:1 read 5', '253:1 write 0'],
  );
  assert.equal(usage.blockIo.io_serviced_recursive, null);
  assert.deepEqual(usage.pids, { current: 2n, limit: 2n ** 64n - 1n });
  assert.equal(usage.networks, undefined);
});

test('cgroup v1: block I/O comes from the scheduler, or from the throttling layer when that counts alone', async () => {
  const group = await ownGroup();
  const at = (controller: string): string => join('v1', controller, group(controller) ?? '/');
  await write({
    [`${at('cpuacct')}/cpuacct.usage_percpu`]: '10 20 \n',
    [`${at('cpuacct')}/cpuacct.stat`]: 'user 3\nsystem 1\n',
    [`${at('memory')}/memory.usage_in_bytes`]: '5\n',
    [`${at('memory')}/memory.limit_in_bytes`]: '4096\n',
    'v1/blkio/blkio.bfq.io_service_bytes_recursive': 'Total 0\n',
    'v1/blkio/blkio.throttle.io_service_bytes_recursive': 'Total 0\n',
    [`${at('blkio')}/blkio.bfq.io_service_bytes_recursive`]: 'Total 0\n',
    [`${at('blkio')}/blkio.throttle.io_service_bytes_recursive`]: '8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n',
  });
  const controllers = new Map(
    ['cpuacct', 'cpu', 'memory', 'blkio', 'pids'].map((name) => [name, join(root, 'v1', name)]),
  );
  const readOne = (usesHostNetwork: boolean): ContainerUsage => {
    const targets = [{ id: ID, pid: process.pid, usesHostNetwork }];
    const [usage] = read({ mounts: { controllers, unified: undefined }, targets });
    assert.ok(usage);
    return usage;
  };
  const throttled = readOne(false);
  assert.deepEqual(throttled.cpu.perCpuNs, [10n, 20n]);
  assert.deepEqual([throttled.cpu.userNs, throttled.cpu.kernelNs], [30_000_000n, 10_000_000n]);
  assert.deepEqual([throttled.memory.limit, throttled.pids.limit], [4096n, 0n]);
  assert.deepEqual(
    throttled.blockIo.io_service_bytes_recursive?.map(({ op, value }) => `${op} ${value}`),
    ['Read 1', 'Write 2', 'Total 3'],
  );
  assert.deepEqual(throttled.blockIo.sectors_recursive, []);
  await write({ [`${at('blkio')}/blkio.bfq.io_service_bytes_recursive`]: '8:16 Read 9\nTotal 9\n' });
  const scheduled = readOne(true);
  assert.deepEqual(scheduled.blockIo.io_service_bytes_recursive, [{ major: 8, minor: 16, op: 'Read', value: 9n }]);
});

test('the group is the one with the id in its name, however deep init has moved itself', () => {
  const membership =
    `4:cpu,cpuacct:/engine/${ID}/deeper\n1:name=systemd:/system.slice/engine-${ID}.scope/init.scope\n` +
    '0::/elsewhere\n';
  const group = groupsOf(membership, ID);
  assert.deepEqual(
    [group('cpuacct'), group('name=systemd'), group(''), group('pids')],
    [`/engine/${ID}`, `/system.slice/engine-${ID}.scope`, '/elsewhere', undefined],
  );
});

test('interfaces of the kernel are left out, and a name may touch its first number', () => {
  const text =
    'Inter-|   Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n' +
    '  sit0: 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  eth0:18446744073709551615 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n';
  assert.deepEqual(parseNetDev(text), {
    eth0: {
      rxBytes: 18446744073709551615n,
      rxPackets: 2n,
      rxErrors: 3n,
      rxDropped: 4n,
      txBytes: 5n,
      txPackets: 6n,
      txErrors: 7n,
      txDropped: 8n,
    },
  });
});

test('time of the host is the sum of the first seven kinds', () => {
  assert.deepEqual(
    parseHostCpu('cpu  1 2 3 4 5 6 7 800 900 0\ncpu0 1 2 3 4 5 6 7 8 9 0\ncpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n'),
    { systemNs: 280_000_000n, onlineCpus: 2 },
  );
});
