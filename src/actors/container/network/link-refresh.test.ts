import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Logger } from '../../../ports/logger.js';
import type { ContainerRecord } from '../container.record.js';
import { ContainerViews } from '../views.js';
import { refreshLinks } from './link-refresh.js';

const TARGET = 'target';

function recordOf(id: string, links?: ContainerRecord['links']): ContainerRecord {
  const record = { id, name: `/${id}`, state: { status: 'running' }, networks: {}, ...(links && { links }) };
  // To sort all records is to read this.
  const created = { get: () => assert.fail('all containers are looked through') };
  return Object.defineProperty(record, 'created', created) as unknown as ContainerRecord;
}

test('a container that begins to run looks only at those with links', () => {
  const views = new ContainerViews();
  const toTarget = [{ id: TARGET, alias: 'db' }];
  const target = recordOf(TARGET);
  for (const record of [target, recordOf('plain'), recordOf('linked', toTarget), recordOf('left', toTarget)])
    views.load(record);
  views.publish('left', recordOf('left'));
  views.load(recordOf('gone', toTarget));
  views.publish('gone', undefined);
  const written: string[] = [];
  const writeFiles = async ({ id }: ContainerRecord): Promise<void> => void written.push(id);
  const log = { error: (_: object, message: string) => assert.fail(message) } as unknown as Logger;
  refreshLinks({ network: { link: async () => undefined }, views, writeFiles, log }, target);
  assert.deepEqual(written, ['linked']);
  assert.deepEqual(views.linkNames(TARGET), ['/linked/db']);
});
