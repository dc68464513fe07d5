import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerUsage } from '../../ports/stats.js';
import { statsJson } from './stats-view.js';

const none = { io_queue_recursive: null, io_service_time_recursive: null, io_wait_time_recursive: null };
const usage: ContainerUsage = {
  readAt: '2026-11-28T00:00:01Z',
  cpu: {
    totalNs: 2n ** 63n + 1n,
    kernelNs: 2n,
    userNs: 3n,
    perCpuNs: [1n, 2n],
    systemNs: 4n,
    onlineCpus: 2,
    throttling: { periods: 5n, throttledPeriods: 6n, throttledNs: 7n },
  },
  memory: { usage: 8n, maxUsage: 9n, limit: 10n, failcnt: 11n, stats: { names: ['a', 'b'], values: [12n, 0n] } },
  blockIo: {
    ...none,
    io_service_bytes_recursive: [
      { major: 8, minor: 0, op: 'Read', value: 13n },
      { major: 8, minor: 1, op: 'Write', value: 14n },
    ],
    io_serviced_recursive: [],
    io_merged_recursive: null,
    io_time_recursive: null,
    sectors_recursive: null,
  },
  pids: { current: 15n, limit: 0n },
  networks: {
    'a"b': {
      rxBytes: 1n,
      rxPackets: 2n,
      rxErrors: 3n,
      rxDropped: 4n,
      txBytes: 5n,
      txPackets: 6n,
      txErrors: 7n,
      txDropped: 8n,
    },
  },
};
const CPU =
  '{"cpu_usage":{"total_usage":9223372036854775809,"percpu_usage":[1,2],"usage_in_kernelmode":2,' +
  '"usage_in_usermode":3},"system_cpu_usage":4,"online_cpus":2,' +
  '"throttling_data":{"periods":5,"throttled_periods":6,"throttled_time":7}}';
const NO_CPU =
  '{"cpu_usage":{"total_usage":0,"usage_in_kernelmode":0,"usage_in_usermode":0},' +
  '"throttling_data":{"periods":0,"throttled_periods":0,"throttled_time":0}}';

test('counters keep all digits, those that are 0 are left out where dockerd does so, and names are quoted', () => {
  assert.equal(
    statsJson({ id: 'abc', name: '/a' }, usage, usage),
    '{"name":"/a","id":"abc","read":"2026-11-28T00:00:01Z","preread":"2026-11-28T00:00:01Z",' +
      '"pids_stats":{"current":15},"blkio_stats":{"io_service_bytes_recursive":' +
      '[{"major":8,"minor":0,"op":"Read","value":13},{"major":8,"minor":1,"op":"Write","value":14}],' +
      '"io_serviced_recursive":[],"io_queue_recursive":null,"io_service_time_recursive":null,' +
      '"io_wait_time_recursive":null,"io_merged_recursive":null,"io_time_recursive":null,"sectors_recursive":null},' +
      `"num_procs":0,"storage_stats":{},"cpu_stats":${CPU},"precpu_stats":${CPU},` +
      '"memory_stats":{"usage":8,"max_usage":9,"stats":{"a":12,"b":0},"failcnt":11,"limit":10},' +
      '"networks":{"a\\"b":{"rx_bytes":1,"rx_packets":2,"rx_errors":3,"rx_dropped":4,' +
      '"tx_bytes":5,"tx_packets":6,"tx_errors":7,"tx_dropped":8}}}\n',
  );
});

test('without a reading there are no counters', () => {
  const nulls =
    '"io_service_bytes_recursive":null,"io_serviced_recursive":null,"io_queue_recursive":null,' +
    '"io_service_time_recursive":null,"io_wait_time_recursive":null,"io_merged_recursive":null,' +
    '"io_time_recursive":null,"sectors_recursive":null';
  assert.equal(
    statsJson({ id: 'abc', name: '/a' }, undefined, undefined),
    '{"name":"/a","id":"abc","read":"0001-01-01T00:00:00Z","preread":"0001-01-01T00:00:00Z","pids_stats":{},' +
      `"blkio_stats":{${nulls}},"num_procs":0,"storage_stats":{},"cpu_stats":${NO_CPU},"precpu_stats":${NO_CPU},` +
      '"memory_stats":{}}\n',
  );
});
