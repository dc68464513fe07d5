import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HostConfig } from '../../../ports/container.js';
import type { ContainerRecord } from '../container.record.js';
import { nextDelayMs, wantsRestart, wantsStartAtBoot } from './restart-policy.js';

function ended(
  Name: string,
  exitCode: number,
  more: Partial<ContainerRecord> = {},
  MaximumRetryCount = 0,
): ContainerRecord {
  const hostConfig = { RestartPolicy: { Name, MaximumRetryCount } } as HostConfig;
  return {
    hostConfig,
    state: { exitCode, startedAt: '2026-01-01T00:00:00Z' },
    manuallyStopped: false,
    restartCount: 0,
    ...more,
  } as ContainerRecord;
}

test('pauses double from 100 ms to a minute, and begin anew after a run of ten seconds', () => {
  const pauses: number[] = [];
  for (let last = 0; pauses.length < 12;) pauses.push((last = nextDelayMs(last, 50)));
  assert.deepEqual(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
  assert.equal(nextDelayMs(60_000, 9999), 60_000);
  assert.equal(nextDelayMs(60_000, 10_000), 100);
});

test('which exit brings a container back', () => {
  const stopped = { manuallyStopped: true };
  assert.deepEqual(
    ['no', '', 'always', 'unless-stopped', 'on-failure'].map((name) => wantsRestart(ended(name, 1))),
    [false, false, true, true, true],
  );
  assert.deepEqual(
    ['always', 'unless-stopped', 'on-failure'].map((name) => wantsRestart(ended(name, 0))),
    [true, true, false],
  );
  assert.deepEqual(
    ['always', 'unless-stopped', 'on-failure'].map((name) => wantsRestart(ended(name, 1, stopped))),
    [false, false, false],
  );
  assert.deepEqual(
    [1, 2, 3].map((restartCount) => wantsRestart(ended('on-failure', 1, { restartCount }, 2))),
    [true, false, false],
  );
});

test('which container is started with the daemon', () => {
  const stopped = { manuallyStopped: true };
  assert.deepEqual(
    ['no', 'always', 'unless-stopped', 'on-failure'].map((name) => wantsStartAtBoot(ended(name, 0, stopped))),
    [false, true, false, false],
  );
  assert.equal(wantsStartAtBoot(ended('unless-stopped', 0)), true);
  const never = { state: { ...ended('always', 0).state, startedAt: '0001-01-01T00:00:00Z' } };
  assert.equal(wantsStartAtBoot(ended('always', 0, never)), false);
});
