/** Which label the source of a mount gets. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MountPoint } from '../../../ports/container.js';
import { invalid } from '../../../errors/engine-error.js';
import type { ContainerRecord } from '../container.record.js';
import { labelSource } from './labels.js';

const OWN = 'u:o:f:s0:c1,c2';
const SHARED = 'u:o:f:s0';
const labelled = { labels: { processLabel: 'u:r:t:s0:c1,c2', mountLabel: OWN } } as ContainerRecord;

async function labelFor(Type: MountPoint['Type'], Mode: string, record = labelled): Promise<string | undefined> {
  let found: string | undefined;
  const point: MountPoint = { Type, Mode, Source: '/tmp', Destination: '/x', RW: true, Propagation: '' };
  await labelSource({ relabel: async (_path, label) => void (found = label) }, record, point);
  return found;
}

test('a bind gets the label that its mode asks for, and none otherwise', async () => {
  assert.equal(await labelFor('bind', 'z'), SHARED);
  assert.equal(await labelFor('bind', 'ro,Z'), OWN);
  assert.equal(await labelFor('bind', 'ro'), undefined);
  assert.equal(await labelFor('bind', ''), undefined);
});

test('a volume is for all containers, unless its mode says that it is for one', async () => {
  for (const mode of ['', 'z', 'ro']) assert.equal(await labelFor('volume', mode), SHARED, mode);
  assert.equal(await labelFor('volume', 'Z'), OWN);
});

test('a container without labels changes nothing', async () => {
  assert.equal(await labelFor('bind', 'Z', {} as ContainerRecord), undefined);
});

test('a refusal names the source as the client wrote it', async () => {
  const relabel = async (): Promise<void> => {
    throw invalid('SELinux relabeling of /etc is not allowed');
  };
  const [Type, Mode, Source, Destination] = ['bind', 'z', '/etc', '/x'] as const;
  const point: MountPoint = { Type, Mode, Source, Destination, RW: true, Propagation: '' };
  await assert.rejects(labelSource({ relabel }, labelled, point), {
    kind: 'invalid',
    message: "error setting label on mount source '/etc': SELinux relabeling of /etc is not allowed",
  });
});
