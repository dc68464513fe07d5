import assert from 'node:assert/strict';
import { openSync, readlinkSync } from 'node:fs';
import { test } from 'node:test';
import { waitFor } from '../../../test/support/wait.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { KeptNamespaces } from './kept-namespaces.js';

const HOUR_MS = 3_600_000;

const mapsFrom = (hostId: number): IdMaps => {
  const ranges = [{ containerId: 0, hostId, count: 10 }];
  return { uids: ranges, gids: ranges };
};

/** Returns an object with descriptors of a file in the place of those of namespaces, and the maps that it opened. */
function kept(idleMs = HOUR_MS): { namespaces: KeptNamespaces; opened: IdMaps[] } {
  const opened: IdMaps[] = [];
  const open = async (maps: IdMaps): Promise<number> => {
    opened.push(maps);
    return openSync('/dev/null', 'r');
  };
  return { namespaces: new KeptNamespaces(open, idleMs), opened };
}

/** Whether a descriptor is open; nothing else in this file opens any while one is looked at. */
function isOpen(fd: number): boolean {
  try {
    readlinkSync(`/proc/self/fd/${fd}`);
    return true;
  } catch {
    return false;
  }
}

test('uses of the same maps, at once and one after the other, have one namespace', async () => {
  const { namespaces, opened } = kept();
  const [a, b, other] = await Promise.all([1, 1, 2].map((id) => namespaces.take(mapsFrom(id * 1000))));
  assert.equal(a?.fd, b?.fd);
  assert.notEqual(a?.fd, other?.fd);
  for (const one of [a, b, other]) one?.release();
  assert.equal((await namespaces.take(mapsFrom(1000))).fd, a?.fd);
  assert.equal(opened.length, 2);
});

test('one that nobody uses is closed after a while, and one in use is not', async () => {
  const { namespaces, opened } = kept(1);
  const [idle, used, again] = [
    await namespaces.take(mapsFrom(1)),
    await namespaces.take(mapsFrom(2)),
    await namespaces.take(mapsFrom(2)),
  ];
  idle.release();
  again.release();
  await waitFor('the closing', () => !isOpen(idle.fd));
  assert.ok(isOpen(used.fd));
  used.release();
  await waitFor('the closing', () => !isOpen(used.fd));
  await namespaces.take(mapsFrom(1));
  assert.equal(opened.length, 3);
});

test('of those that nobody uses, the ones of the longest time ago are closed', async () => {
  const { namespaces } = kept();
  const first = await namespaces.take(mapsFrom(1));
  const fds: number[] = [];
  for (let id = 2; id < 22; id++) {
    const { fd, release } = await namespaces.take(mapsFrom(id));
    fds.push(fd);
    release();
    // A use makes it the one of the shortest time ago.
    (await namespaces.take(mapsFrom(2))).release();
  }
  // A number that was closed is given again.
  await waitFor('the closing', () => new Set(fds.filter((fd) => isOpen(fd))).size === 16);
  assert.ok(isOpen(first.fd) && isOpen(fds[0] ?? -1));
});

test('a failure is told to all who wait, and the next one tries again', async () => {
  let attempts = 0;
  const namespaces = new KeptNamespaces(async () => {
    attempts++;
    throw new Error('no more namespaces');
  });
  const all = await Promise.allSettled([namespaces.take(mapsFrom(1)), namespaces.take(mapsFrom(1))]);
  assert.deepEqual([all.map(({ status }) => status), attempts], [['rejected', 'rejected'], 1]);
  await assert.rejects(namespaces.take(mapsFrom(1)), /no more namespaces/);
  assert.equal(attempts, 2);
});
