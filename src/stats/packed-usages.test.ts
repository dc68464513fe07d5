import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerUsage } from '../ports/stats.js';
import { noCgroups } from './no-cgroups.js';
import { KeptFiles } from './kept-files.js';
import { packUsages, unpackUsages } from './packed-usages.js';

const nothing = { io_service_time_recursive: null, io_wait_time_recursive: null, io_merged_recursive: null };
const full: ContainerUsage = {
  readAt: '2026-11-28T00:00:00.000000001Z',
  cpu: {
    totalNs: 2n ** 60n + 1n,
    kernelNs: 2n,
    userNs: 3n,
    perCpuNs: [4n, 5n],
    systemNs: 6n,
    onlineCpus: 7,
    throttling: { periods: 8n, throttledPeriods: 9n, throttledNs: 10n },
  },
  memory: { usage: 11n, maxUsage: 12n, limit: 13n, failcnt: 14n, stats: { names: ['a', 'b'], values: [15n, 16n] } },
  blockIo: {
    ...nothing,
    io_service_bytes_recursive: [
      { major: 8, minor: 1, op: 'Read', value: 17n },
      { major: 8, minor: 2, op: '', value: 18n },
    ],
    io_serviced_recursive: [],
    io_queue_recursive: null,
    io_time_recursive: null,
    sectors_recursive: [{ major: 8, minor: 3, op: 'Total', value: 19n }],
  },
  pids: { current: 20n, limit: 2n ** 64n - 1n },
  networks: {
    eth0: {
      rxBytes: 21n,
      rxPackets: 22n,
      rxErrors: 23n,
      rxDropped: 24n,
      txBytes: 25n,
      txPackets: 26n,
      txErrors: 27n,
      txDropped: 28n,
    },
    eth1: {
      rxBytes: 29n,
      rxPackets: 30n,
      rxErrors: 31n,
      rxDropped: 32n,
      txBytes: 33n,
      txPackets: 34n,
      txErrors: 35n,
      txDropped: 36n,
    },
  },
};

test('what was packed comes out the same: all counters, what is not there, and those that have ended', () => {
  const least = noCgroups.read(() => undefined, new KeptFiles());
  assert.ok(least);
  const bare: ContainerUsage = {
    ...least,
    readAt: 'now',
    cpu: { ...least.cpu, systemNs: 1n, onlineCpus: 2 },
    networks: undefined,
  };
  const unconnected: ContainerUsage = { ...full, networks: {} };
  const usages = [full, undefined, bare, unconnected, full];
  assert.deepEqual(unpackUsages(structuredClone(packUsages(usages))), usages);
});
