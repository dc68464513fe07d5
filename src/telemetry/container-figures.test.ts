import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerUsage } from '../ports/stats.js';
import { containerFiguresText, type ContainerFigures } from './container-figures.js';

const TRAFFIC = {
  rxBytes: 10n,
  rxPackets: 1n,
  rxErrors: 0n,
  rxDropped: 0n,
  txBytes: 20n,
  txPackets: 2n,
  txErrors: 0n,
  txDropped: 0n,
};

const USAGE: ContainerUsage = {
  readAt: '2026-01-02T03:04:05.000000006Z',
  cpu: {
    totalNs: 2_500_000_000n,
    kernelNs: 500_000_000n,
    userNs: 2_000_000_000n,
    systemNs: 0n,
    onlineCpus: 1,
    throttling: { periods: 0n, throttledPeriods: 0n, throttledNs: 250_000_000n },
  },
  memory: { usage: 1000n, limit: 4096n, failcnt: 3n, stats: { names: ['inactive_file'], values: [400n] } },
  blockIo: {
    io_service_bytes_recursive: [
      { major: 8, minor: 0, op: 'Read', value: 5n },
      { major: 8, minor: 16, op: 'read', value: 6n },
      { major: 8, minor: 0, op: 'Write', value: 7n },
      { major: 8, minor: 0, op: 'Total', value: 12n },
    ],
    io_serviced_recursive: null,
    io_queue_recursive: null,
    io_service_time_recursive: null,
    io_wait_time_recursive: null,
    io_merged_recursive: null,
    io_time_recursive: null,
    sectors_recursive: null,
  },
  pids: { current: 4n, limit: 0n },
  networks: { eth0: TRAFFIC, eth1: TRAFFIC },
};

const ENDED: ContainerFigures = {
  name: 'ended',
  isRunning: false,
  startedAt: undefined,
  exitCode: 3,
  restarts: 0,
  health: undefined,
  usage: undefined,
};

const RUNNING: ContainerFigures = {
  name: 'web',
  isRunning: true,
  startedAt: 1700.5,
  exitCode: undefined,
  restarts: 2,
  health: 'unhealthy',
  usage: USAGE,
};

async function seriesOf(...containers: ContainerFigures[]): Promise<string[]> {
  const text = await containerFiguresText(containers);
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
}

test('a running container has its usage, one that has ended only what is known of it', async () => {
  assert.deepEqual(await seriesOf(RUNNING, ENDED), [
    'engine_container_running{container="web"} 1',
    'engine_container_running{container="ended"} 0',
    'engine_container_start_time_seconds{container="web"} 1700.5',
    'engine_container_exit_code{container="ended"} 3',
    'engine_container_restarts_total{container="web"} 2',
    'engine_container_restarts_total{container="ended"} 0',
    'engine_container_health{container="web",state="unhealthy"} 1',
    'engine_container_cpu_seconds_total{container="web"} 2.5',
    'engine_container_cpu_user_seconds_total{container="web"} 2',
    'engine_container_cpu_system_seconds_total{container="web"} 0.5',
    'engine_container_cpu_throttled_seconds_total{container="web"} 0.25',
    'engine_container_memory_usage_bytes{container="web"} 1000',
    'engine_container_memory_working_set_bytes{container="web"} 600',
    'engine_container_memory_limit_bytes{container="web"} 4096',
    'engine_container_memory_failures_total{container="web"} 3',
    'engine_container_block_read_bytes_total{container="web"} 11',
    'engine_container_block_write_bytes_total{container="web"} 7',
    'engine_container_network_receive_bytes_total{container="web"} 20',
    'engine_container_network_receive_packets_total{container="web"} 2',
    'engine_container_network_receive_errors_total{container="web"} 0',
    'engine_container_network_receive_dropped_total{container="web"} 0',
    'engine_container_network_transmit_bytes_total{container="web"} 40',
    'engine_container_network_transmit_packets_total{container="web"} 4',
    'engine_container_network_transmit_errors_total{container="web"} 0',
    'engine_container_network_transmit_dropped_total{container="web"} 0',
    'engine_container_processes{container="web"} 4',
  ]);
});

test('a container in the network of the host has no traffic of its own', async () => {
  const { networks: _, ...usage } = USAGE;
  const lines = await seriesOf({ ...RUNNING, usage: { ...usage, networks: undefined } });
  assert.deepEqual(
    lines.filter((line) => line.includes('_network_')),
    [],
  );
});

test('a name cannot break out of its label, and every family says its type once', async () => {
  const text = await containerFiguresText([{ ...ENDED, name: 'a"} 1\nb\\' }, ENDED]);
  assert.ok(text.includes('engine_container_running{container="a\\"} 1\\nb\\\\"} 0\n'));
  assert.equal(text.split('# TYPE engine_container_running gauge\n').length, 2);
});
