import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Survives } from '../../sys/files/durable-file.js';
import type { ContainerRecord } from './container.record.js';
import { ContainerRecords } from './records.js';

const recordOf = (name: string): ContainerRecord => ({ id: 'one', name }) as ContainerRecord;

test('what is written together survives what the most demanding of its writers asked for', async () => {
  const written: { name: string; survives: Survives }[] = [];
  let finish = (): void => undefined;
  const records = new ContainerRecords('/nowhere', {
    write: (_, value, survives) => {
      written.push({ name: (value as ContainerRecord).name, survives });
      return new Promise((resolve) => (finish = resolve));
    },
    read: async () => undefined,
    urgent: (write) => write(),
  });
  const all = [records.saveForRun(recordOf('alone'))];
  await turn();
  // These come while the first one is being written.
  all.push(records.save(recordOf('older')), records.saveForRun(recordOf('newer')));
  finish();
  await turn();
  finish();
  await Promise.all(all);
  all.push(records.saveForRun(recordOf('last')));
  await turn();
  finish();
  await Promise.all(all);
  assert.deepEqual(written, [
    { name: 'alone', survives: 'kill' },
    { name: 'newer', survives: 'power-cut' },
    { name: 'last', survives: 'kill' },
  ]);
});
