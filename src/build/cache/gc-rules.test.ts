import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT_BUILDER_GC } from '../../config/builder-gc.js';
import { gcRules, type GcSettings, pruneOf } from './gc-rules.js';

const DISK_BYTES = 252 * 1024 ** 3;
const NOTHING = DEFAULT_BUILDER_GC.defaults;

test('a daemon that was told nothing has the rules that dockerd has on such a disk', () => {
  const limits = { reservedSpace: 26e9, maxUsedSpace: 202e9, minFreeSpace: 51e9 };
  const [first, ...others] = gcRules(DEFAULT_BUILDER_GC, DISK_BYTES);
  assert.deepEqual(first?.filters, ['type==source.local', 'type==exec.cachemount', 'type==source.git.checkout']);
  assert.equal(first?.keepDurationMs, 48 * 3_600_000);
  assert.equal(((first?.maxUsedSpace ?? 0) / 1024 ** 3).toFixed(3), '3.346');
  assert.deepEqual(others, [
    { ...limits, filters: [], all: false, keepDurationMs: 60 * 24 * 3_600_000 },
    { ...limits, filters: [], all: false, keepDurationMs: 0 },
    { ...limits, filters: [], all: true, keepDurationMs: 0 },
  ]);
});

test('what the operator says takes the place of it', () => {
  const [, rule] = gcRules({ defaults: { ...NOTHING, reservedSpace: 5 }, policy: undefined }, DISK_BYTES);
  assert.deepEqual([rule?.reservedSpace, rule?.maxUsedSpace, rule?.minFreeSpace], [5, 0, 0]);
  const settings: GcSettings = {
    defaults: NOTHING,
    policy: [
      {
        ...NOTHING,
        maxUsedSpace: { percent: 50 },
        all: true,
        keepDurationMs: 7,
        filter: ['type=regular', 'id=abc', 'description~=x'],
      },
    ],
  };
  const [own, ...more] = gcRules(settings, 1000);
  assert.deepEqual(more, []);
  assert.deepEqual(own, {
    reservedSpace: 0,
    maxUsedSpace: 500,
    minFreeSpace: 0,
    all: true,
    keepDurationMs: 7,
    filters: ['type==regular,id~=abc,description~=x'],
  });
  const record = {
    id: 'zabcz',
    parents: [],
    type: 'regular',
    description: 'axb',
    inUse: false,
    shared: false,
    size: 1,
    createdAt: 0,
    lastUsedAt: undefined,
    usageCount: 0,
  } as const;
  assert.equal(own && pruneOf(own).selects(record), true);
  assert.equal(own && pruneOf(own).selects({ ...record, id: 'other' }), false);
});
