import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerConfig, HealthConfig } from '../../../ports/container.js';
import type { ContainerRecord } from '../container.record.js';
import { probeDelayMs, probePlan, withEndedHealth, withProbeResult, withStartingHealth } from './health.js';

const STARTED = '2026-01-01T00:00:00.5Z';

function started(Healthcheck: HealthConfig): ContainerRecord {
  const config = { Healthcheck } as ContainerConfig;
  return withStartingHealth({ config, state: { startedAt: STARTED } } as ContainerRecord);
}

/**
 * Returns the record after probes with these exit codes. They are a second apart, the first one a second after the
 * start.
 */
function after(record: ContainerRecord, ...exitCodes: number[]): ContainerRecord {
  return exitCodes.reduce((current, exitCode, index) => {
    const at = new Date(Date.parse(STARTED) + 1000 * (index + 1)).toISOString();
    return withProbeResult(current, { start: at, end: at, exitCode, output: String(index) });
  }, record);
}

test('a plan has the defaults of the Engine API, and there is none for NONE, nothing and the unknown', () => {
  const defaults = { intervalMs: 30_000, timeoutMs: 30_000, startPeriodMs: 0, startIntervalMs: 5000, retries: 3 };
  assert.deepEqual(probePlan({ Healthcheck: { Test: ['CMD', 'a', 'b'] } }), { argv: ['a', 'b'], ...defaults });
  assert.deepEqual(probePlan({ Healthcheck: { Test: ['CMD-SHELL', 'a b'], Retries: 1, Interval: 5e6 } }), {
    ...defaults,
    argv: ['/bin/sh', '-c', 'a b'],
    retries: 1,
    intervalMs: 5,
  });
  assert.deepEqual(probePlan({ Healthcheck: { Test: ['CMD-SHELL', 'a'] }, Shell: ['/bin/zsh', '-ec'] })?.argv, [
    '/bin/zsh',
    '-ec',
    'a',
  ]);
  for (const Test of [['NONE'], [], ['SHELL', 'x']]) assert.equal(probePlan({ Healthcheck: { Test } }), undefined);
  assert.equal(probePlan({}), undefined);
});

test('the streak makes unhealthy at the number of retries; one success ends it; five results are kept', () => {
  const record = started({ Test: ['CMD', 'x'], Retries: 2 });
  assert.deepEqual(record.state.health, { status: 'starting', failingStreak: 0, log: [] });
  assert.equal(after(record, 1).state.health?.status, 'starting');
  assert.equal(after(record, 0, 1).state.health?.status, 'healthy');
  assert.deepEqual(withEndedHealth(after(record, 0)).state.health?.status, 'unhealthy');
  const last = after(record, 1, -1, 1, 0, 0, 1, 1).state.health;
  assert.deepEqual(
    { status: last?.status, streak: last?.failingStreak, log: last?.log.map(({ output }) => output) },
    { status: 'unhealthy', streak: 2, log: ['2', '3', '4', '5', '6'] },
  );
});

test('the start period forgives failures and has its own interval, until the container was healthy once', () => {
  const record = started({ Test: ['CMD', 'x'], Retries: 1, StartPeriod: 2.5e9, StartInterval: 1e8 });
  const plan = probePlan(record.config);
  assert.ok(plan);
  const delay = (at: ContainerRecord, ms: number): number => probeDelayMs(plan, at.state, Date.parse(STARTED) + ms);
  assert.deepEqual(after(record, 1, 1).state.health?.failingStreak, 0);
  assert.equal(after(record, 1, 1, 1).state.health?.status, 'unhealthy');
  assert.equal(after(record, 0, 1).state.health?.status, 'unhealthy');
  assert.deepEqual(
    [delay(record, 0), delay(record, 2499), delay(record, 2500), delay(after(record, 0), 0)],
    [100, 100, 30_000, 30_000],
  );
});
