import assert from 'node:assert/strict';
import { test } from 'node:test';
import { KEPT_MS } from './kept-files.js';
import { KeptGroups } from './kept-groups.js';

const ID = 'ab'.repeat(32);
const target = (pid: number): { id: string; pid: number; usesHostNetwork: boolean } => ({
  id: ID,
  pid,
  usesHostNetwork: true,
});

test('groups are known for the same init only, and for as long as somebody reads them', () => {
  let now = 0;
  const groups = new KeptGroups(() => now);
  const group = (controller: string): string | undefined => (controller === 'cpu' ? `/engine/${ID}` : undefined);
  groups.begin();
  groups.keep(target(5), group, ['cpu', 'memory']);
  assert.equal(groups.find(target(5)), group);
  assert.equal(groups.find(target(6)), undefined);
  now = KEPT_MS;
  groups.begin();
  assert.equal(groups.find(target(5)), group);
  now = 2 * KEPT_MS + 1;
  groups.begin();
  assert.equal(groups.find(target(5)), undefined);
});

test('groups without the id of the container are asked for each time, because its init may leave them', () => {
  const groups = new KeptGroups();
  groups.begin();
  groups.keep(target(5), (controller) => (controller === 'cpu' ? `/engine/${ID}` : '/user.slice'), ['cpu', 'memory']);
  assert.equal(groups.find(target(5)), undefined);
});
