import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerOwner, hostOwner, rootOwner } from './id-maps.js';

const maps = {
  uids: [
    { containerId: 0, hostId: 200_000, count: 1000 },
    { containerId: 1000, hostId: 300_000, count: 10 },
  ],
  gids: [{ containerId: 0, hostId: 5000, count: 1 }],
};

test('ids of several ranges go to the host and come back', () => {
  for (const [uid, host] of [
    [0, 200_000],
    [999, 200_999],
    [1000, 300_000],
    [1009, 300_009],
  ] as const) {
    assert.deepEqual(hostOwner(maps, { uid, gid: 0 }), { uid: host, gid: 5000 });
    assert.deepEqual(containerOwner(maps, { uid: host, gid: 5000 }), { uid, gid: 0 });
  }
  assert.deepEqual(
    [rootOwner(maps), rootOwner(undefined)],
    [
      { uid: 200_000, gid: 5000 },
      { uid: 0, gid: 0 },
    ],
  );
});

test('ids beyond the ranges: refused on their way in, nobody on their way out', () => {
  for (const owner of [
    { uid: 1010, gid: 0 },
    { uid: 0, gid: 1 },
    { uid: -1, gid: 0 },
  ])
    assert.throws(() => hostOwner(maps, owner), /^EngineError: Container ID -?\d+ cannot be mapped to a host ID$/);
  for (const uid of [0, 199_999, 201_000, 300_010])
    assert.deepEqual(containerOwner(maps, { uid, gid: 5001 }), { uid: 65_534, gid: 65_534 });
});
