import assert from 'node:assert/strict';
import { test } from 'node:test';
import { makeEvent } from './event-json.js';
import { eventFilter } from './filters.js';

const matches = (
  filters: Record<string, string[]>,
  ...[type, action, id, attributes]: Parameters<typeof makeEvent>
): boolean => eventFilter({ get: (key) => filters[key] ?? [] })(makeEvent(type, action, id, attributes));

const container = [
  'container',
  'exec_create: sh -c ls',
  'abcdef',
  { image: 'docker.io/library/busybox:1.36', name: 'web', tier: 'front', empty: '' },
] as const;

test('no filters match everything, unknown keys are ignored', () => {
  assert.ok(matches({}, ...container));
  assert.ok(matches({ nonsense: ['x'] }, ...container));
});

test('type and scope are exact', () => {
  assert.ok(matches({ type: ['image', 'container'], scope: ['local'] }, ...container));
  assert.ok(!matches({ type: ['contain'] }, ...container));
  assert.ok(!matches({ scope: ['swarm'] }, ...container));
});

test('event is exact, but for the three that carry more', () => {
  assert.ok(matches({ event: ['exec_create'] }, ...container));
  assert.ok(matches({ event: ['start', 'exec_create: sh -c ls'] }, ...container));
  assert.ok(!matches({ event: ['exec'] }, ...container));
  assert.ok(matches({ event: ['health_status'] }, 'container', 'health_status: healthy', 'a', {}));
  assert.ok(!matches({ event: ['star'] }, 'container', 'start', 'a', {}));
});

test('things by the beginning of their id or name', () => {
  assert.ok(matches({ container: ['abc'] }, ...container));
  assert.ok(matches({ container: ['we'] }, ...container));
  assert.ok(!matches({ container: ['bcd'] }, ...container));
  assert.ok(matches({ network: ['bridge'] }, 'network', 'connect', 'n1', { name: 'bridge', container: 'abc' }));
  assert.ok(!matches({ container: ['abc'] }, 'network', 'connect', 'n1', { name: 'bridge', container: 'abc' }));
  assert.ok(matches({ volume: ['data'] }, 'volume', 'mount', 'data', {}));
});

test('images with and without tag, for containers too', () => {
  assert.ok(matches({ image: ['busybox'] }, ...container));
  assert.ok(matches({ image: ['docker.io/library/busybox:1.36'] }, ...container));
  assert.ok(!matches({ image: ['busybox:1.35'] }, ...container));
  assert.ok(matches({ image: ['reg:5000/a/b'] }, 'image', 'pull', 'reg:5000/a/b:v1', { name: 'reg:5000/a/b' }));
  assert.ok(!matches({ image: ['reg'] }, 'image', 'pull', 'reg:5000/a/b:v1', { name: 'reg:5000/a/b' }));
});

test('labels must all match', () => {
  assert.ok(matches({ label: ['tier', 'tier=front', 'empty='] }, ...container));
  assert.ok(!matches({ label: ['tier=front', 'other'] }, ...container));
  assert.ok(!matches({ label: ['tier=back'] }, ...container));
});
