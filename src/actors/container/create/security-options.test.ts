/** SELinux options of containers that share namespaces. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ContainerHolds } from '../holds.js';
import type { ContainerRecord } from '../container.record.js';
import { withLabelOptions } from './security-options.js';

const labels = (level: string): Pick<ContainerRecord, 'labels'> => ({
  labels: { processLabel: level && `u:r:t:${level}`, mountLabel: `u:o:f:${level}` },
});
const known: Readonly<Record<string, Pick<ContainerRecord, 'labels'>>> = {
  one: labels('s0:c1,c2'),
  two: labels('s0:c3,c4'),
  off: labels(''),
  old: {},
};
const options = (given: Partial<Parameters<typeof withLabelOptions>[0]>): readonly string[] | null =>
  withLabelOptions(
    { SecurityOpt: null, Privileged: false, IpcMode: 'private', PidMode: '', ...given },
    (id) => known[id] ?? {},
  );
const ONE = ['label=user:u', 'label=role:r', 'label=type:t', 'label=level:s0:c1,c2'];

test('a container that joins another one has its label', () => {
  assert.deepEqual(options({ IpcMode: 'container:one' }), ONE);
  assert.deepEqual(options({ PidMode: 'container:one', SecurityOpt: ['apparmor=x'] }), ['apparmor=x', ...ONE]);
  assert.deepEqual(options({ PidMode: 'container:one', IpcMode: 'container:one' }), ONE);
  assert.throws(() => options({ PidMode: 'container:one', IpcMode: 'container:two' }), {
    kind: 'invalid',
    message: "--ipc and --pid containers SELinux labels aren't the same",
  });
});

test('no label follows from a container without one, nor where the client said something', () => {
  assert.equal(options({ IpcMode: 'container:off' }), null);
  assert.equal(options({ IpcMode: 'container:old' }), null);
  assert.deepEqual(options({ IpcMode: 'container:one', SecurityOpt: ['label:type:x'] }), ['label:type:x']);
});

test('who shares namespaces of the host has no label', () => {
  for (const shared of [{ Privileged: true }, { IpcMode: 'host' }, { PidMode: 'host' }])
    assert.deepEqual(options(shared), ['label=disable']);
});

test('labels are held from the draft, or the record of an earlier daemon, until the removal', async () => {
  const calls: string[] = [];
  const holds = new ContainerHolds(
    { retain: () => undefined, release: async () => [] },
    { hold: (id, { mountLabel }) => void calls.push(`hold ${id} ${mountLabel}`), release: (id) => void calls.push(id) },
  );
  holds.retain({ id: 'a', topLayer: undefined, mounts: [], ...labels('s0:c1,c2') } as unknown as ContainerRecord);
  holds.retain({ id: 'b', topLayer: undefined, mounts: [] } as unknown as ContainerRecord);
  await holds.release('a');
  assert.deepEqual(calls, ['hold a u:o:f:s0:c1,c2', 'a']);
});
