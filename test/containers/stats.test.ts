/** Statistics: against what the container does, and the same from dockerd on the same host. */
import assert from 'node:assert/strict';
import { totalmem, cpus } from 'node:os';
import { after, afterEach, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { CliSession } from '../support/cli.js';
import { removeContainers } from '../support/container-removal.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import { waitFor } from '../support/wait.js';

interface Cpu {
  readonly cpu_usage: {
    readonly total_usage: number;
    readonly percpu_usage?: number[];
    readonly usage_in_kernelmode: number;
    readonly usage_in_usermode: number;
  };
  readonly system_cpu_usage?: number;
  readonly online_cpus?: number;
  readonly throttling_data: {
    readonly periods: number;
    readonly throttled_periods: number;
    readonly throttled_time: number;
  };
}

interface Stats {
  readonly name: string;
  readonly id: string;
  readonly read: string;
  readonly preread: string;
  readonly pids_stats: { readonly current?: number; readonly limit?: number };
  readonly blkio_stats: Readonly<Record<string, unknown[] | null>>;
  readonly num_procs: number;
  readonly storage_stats: object;
  readonly cpu_stats: Cpu;
  readonly precpu_stats: Cpu;
  readonly memory_stats: {
    readonly usage?: number;
    readonly limit?: number;
    readonly max_usage?: number;
    readonly failcnt?: number;
    readonly stats?: Readonly<Record<string, number>>;
  };
  readonly networks?: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

const NEVER = '0001-01-01T00:00:00Z';
const BUSY = 'while :; do :; done';
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});

after(() => cleanup.run());

afterEach(() => removeContainers(engine));

function ok(...args: string[]): Promise<string> {
  return engineOk(engine, args);
}

function stats(name: string, query: string): Promise<Stats> {
  return callJson<Stats>(engine.socketPath, 'GET', `/containers/${name}/stats?${query}`);
}

/** The first objects of a stream. */
async function follow(name: string, count: number): Promise<Stats[]> {
  const reply = await open(engine.socketPath, 'GET', `/containers/${name}/stats`);
  const found: Stats[] = [];
  try {
    for await (const object of jsonLines<Stats>(reply.message)) {
      found.push(object);
      if (found.length === count) break;
    }
  } finally {
    reply.close();
  }
  return found;
}

test('one reading has everything, and its previous one a second before', async () => {
  const id = await ok(
    'run',
    '-d',
    '--name',
    'web',
    '--memory',
    '64m',
    '--pids-limit',
    '77',
    '--cpus',
    '0.1',
    image,
    'sh',
    '-c',
    BUSY,
  );
  const { networks, ...found } = await stats('web', 'stream=0');
  assert.equal(found.name, '/web');
  assert.equal(found.id, id);
  assert.equal(found.num_procs, 0);
  assert.deepEqual(found.storage_stats, {});
  assert.ok(Math.abs(Date.parse(found.read) - Date.now()) < 60_000, found.read);
  const elapsed = Date.parse(found.read) - Date.parse(found.preread);
  assert.ok(elapsed >= 500 && elapsed < 60_000, `${elapsed} ms between the readings`);
  assert.deepEqual(found.pids_stats, { current: 1, limit: 77 });
  assert.equal(found.memory_stats.limit, 64 << 20);
  assert.ok((found.memory_stats.usage ?? 0) > 0 && (found.memory_stats.usage ?? 0) <= 64 << 20);
  const { cpu_stats: cpu, precpu_stats: before } = found;
  const used = cpu.cpu_usage.total_usage - before.cpu_usage.total_usage;
  assert.ok(used > 0 && used < (elapsed * 1e6) / 2, `a tenth of a processor for ${elapsed} ms used ${used} ns`);
  assert.ok(cpu.throttling_data.periods > 0, JSON.stringify(cpu.throttling_data));
  assert.equal(cpu.online_cpus, cpus().length);
  const system = (cpu.system_cpu_usage ?? 0) - (before.system_cpu_usage ?? 0);
  assert.ok(
    Math.abs(system / (elapsed * 1e6 * cpus().length) - 1) < 0.5,
    `${system} ns of ${cpus().length} processors in ${elapsed} ms`,
  );
  assert.deepEqual(Object.keys(networks ?? {}), ['eth0']);
  assert.deepEqual(Object.keys(networks?.['eth0'] ?? {}).toSorted(), [
    'rx_bytes',
    'rx_dropped',
    'rx_errors',
    'rx_packets',
    'tx_bytes',
    'tx_dropped',
    'tx_errors',
    'tx_packets',
  ]);
  assert.deepEqual(Object.keys(found.blkio_stats), [
    'io_service_bytes_recursive',
    'io_serviced_recursive',
    'io_queue_recursive',
    'io_service_time_recursive',
    'io_wait_time_recursive',
    'io_merged_recursive',
    'io_time_recursive',
    'sectors_recursive',
  ]);
  // The kernel is asked for each a moment after the other.
  const perCpu = cpu.cpu_usage.percpu_usage?.reduce((sum, ns) => sum + ns, 0);
  if (perCpu !== undefined)
    assert.ok(Math.abs(perCpu / cpu.cpu_usage.total_usage - 1) < 0.2, `${perCpu} and ${cpu.cpu_usage.total_usage}`);
});

test('a one-shot reading comes at once and has no previous one', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const found = await stats('web', 'stream=0&one-shot=1');
  assert.equal(found.preread, NEVER);
  assert.deepEqual(found.precpu_stats, {
    cpu_usage: { total_usage: 0, usage_in_kernelmode: 0, usage_in_usermode: 0 },
    throttling_data: { periods: 0, throttled_periods: 0, throttled_time: 0 },
  });
  assert.ok(found.cpu_stats.cpu_usage.total_usage > 0);
  assert.equal(found.memory_stats.limit, totalmem(), 'without a limit it is the memory of the host');
});

test('memory and network counters tell what the container did', async () => {
  await ok(
    'run',
    '-d',
    '--name',
    'eater',
    image,
    'sh',
    '-c',
    'dd if=/dev/zero of=/dev/shm/some bs=1M count=20 && touch /tmp/done; sleep 1000',
  );
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  await waitFor(
    'the memory to be used',
    async () => (await attempt(engine, ['exec', 'eater', 'test', '-e', '/tmp/done'])).status === 0,
  );
  assert.ok(((await stats('eater', 'stream=0&one-shot=1')).memory_stats.usage ?? 0) > 20_000_000);
  const before = (await stats('web', 'stream=0&one-shot=1')).networks?.['eth0'];
  const gateway = await ok('inspect', '--format', '{{.NetworkSettings.Gateway}}', 'web');
  await ok('exec', 'web', 'ping', '-c', '3', '-s', '1000', gateway);
  const after = (await stats('web', 'stream=0&one-shot=1')).networks?.['eth0'];
  for (const counter of ['rx_bytes', 'tx_bytes']) {
    const grown = (after?.[counter] ?? 0) - (before?.[counter] ?? 0);
    assert.ok(grown >= 3000 && grown < 10_000, `${counter} grew by ${grown}`);
  }
  assert.ok((after?.['tx_packets'] ?? 0) >= (before?.['tx_packets'] ?? 0) + 3);
});

test('a container without a network of its own has no network counters', async () => {
  await ok('run', '-d', '--name', 'none', '--network', 'none', image, 'sleep', '1000');
  await ok('run', '-d', '--name', 'host', '--network', 'host', image, 'sleep', '1000');
  for (const name of ['none', 'host'])
    assert.equal((await stats(name, 'stream=0&one-shot=1')).networks, undefined, name);
});

test('a stream has a reading a second, each with the one before it', async () => {
  await ok('run', '-d', '--name', 'web', '--cpus', '0.1', image, 'sh', '-c', BUSY);
  const [first, second, third] = await follow('web', 3);
  assert.ok(first && second && third);
  assert.equal(first.preread, NEVER);
  assert.deepEqual(second.precpu_stats, first.cpu_stats);
  assert.equal(second.preread, first.read);
  assert.deepEqual(third.precpu_stats, second.cpu_stats);
  assert.ok(third.cpu_stats.cpu_usage.total_usage > second.cpu_stats.cpu_usage.total_usage);
});

test('a stopped container answers with zeros, and a stream of it waits for the next start', async () => {
  const id = await ok('create', '--name', 'web', image, 'sleep', '1000');
  const cpu = {
    cpu_usage: { total_usage: 0, usage_in_kernelmode: 0, usage_in_usermode: 0 },
    throttling_data: { periods: 0, throttled_periods: 0, throttled_time: 0 },
  };
  const empty = await stats('web', 'stream=0');
  assert.deepEqual(
    { name: empty.name, id: empty.id, read: empty.read, preread: empty.preread },
    { name: '/web', id, read: NEVER, preread: NEVER },
  );
  assert.deepEqual(
    {
      cpu: empty.cpu_stats,
      pre: empty.precpu_stats,
      memory: empty.memory_stats,
      pids: empty.pids_stats,
      networks: empty.networks,
    },
    { cpu, pre: cpu, memory: {}, pids: {}, networks: undefined },
  );
  assert.ok(Object.values(empty.blkio_stats).every((value) => value === null));
  const reply = await open(engine.socketPath, 'GET', '/containers/web/stats');
  const found: Stats[] = [];
  const reading = (async () => {
    for await (const object of jsonLines<Stats>(reply.message)) found.push(object);
  })().catch(() => undefined);
  await waitFor('an empty reading', () => found.length > 0);
  assert.equal(found[0]?.memory_stats.usage, undefined);
  await ok('start', 'web');
  await waitFor('a reading of the running container', () => (found.at(-1)?.memory_stats.usage ?? 0) > 0);
  await ok('stop', '-t', '0', 'web');
  await waitFor('an empty reading again', () => found.at(-1)?.memory_stats.usage === undefined);
  // It has another group in the place of the one that was read.
  await ok('start', 'web');
  assert.ok(((await stats('web', 'stream=0&one-shot=1')).memory_stats.usage ?? 0) > 0);
  await ok('rm', '-f', 'web');
  // The stream ends with the container.
  await reading;
});

test('docker stats shows what is used', async () => {
  await ok('run', '-d', '--name', 'web', '--cpus', '0.1', '--memory', '64m', image, 'sh', '-c', BUSY);
  const [name, cpu, memory, pids] = (
    await ok('stats', '--no-stream', '--format', '{{.Name}} {{.CPUPerc}} {{.MemUsage}} {{.PIDs}}')
  )
    .replaceAll(' / ', '/')
    .split(' ');
  assert.deepEqual([name, pids], ['web', '1']);
  assert.ok(Number(cpu?.replace('%', '')) > 1, cpu);
  assert.match(memory ?? '', /^[\d.]+[KM]iB\/64MiB$/);
  const session = new CliSession(engine, ['stats', 'web'], { terminal: { rows: 30, columns: 120 } });
  await session.output(/web +[1-9][\d.]*%/, 30_000);
  session.kill('SIGINT');
  await session.ended();
});

test('a hundred followers cost one reader', async () => {
  await ok('run', '-d', '--name', 'web', image, 'sleep', '1000');
  const replies = await Promise.all(
    Array.from({ length: 100 }, () => open(engine.socketPath, 'GET', '/containers/web/stats')),
  );
  const received = replies.map(() => [] as Stats[]);
  const readings = replies.map((reply, index) =>
    (async () => {
      for await (const object of jsonLines<Stats>(reply.message)) received[index]?.push(object);
    })().catch(() => undefined),
  );
  await waitFor('four readings for everybody', () => received.every((own) => own.length >= 4), 30_000);
  // A reading has the time at which the kernel was asked, in nanoseconds: no two readers would have the same.
  const times = received.map((own) => own.slice(0, 4).map(({ read }) => read));
  const taken = new Set(times.flat());
  assert.ok(taken.size <= 8, `${taken.size} readings were taken to give a hundred followers four each`);
  for (const reply of replies) reply.close();
  await Promise.all(readings);
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).status, 200);
});

test('what cannot be is refused', async () => {
  assert.equal((await call(engine.socketPath, 'GET', '/containers/nobody/stats')).status, 404);
  await ok('create', '--name', 'web', image);
  const both = await call(engine.socketPath, 'GET', '/containers/web/stats?stream=1&one-shot=1');
  assert.equal(both.status, 400);
  assert.match(both.text, /cannot have stream=true and one-shot=true/);
});
