import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { readRecord, removeRecord, writeRecord } from './record-store.js';
import { isTemporary } from '../sys/files/durable-file.js';

const dir = await mkdtemp(join(tmpdir(), 'record-store-'));
after(() => rm(dir, { recursive: true }));

test('what was written is read back, and nothing else stays', async () => {
  const path = join(dir, 'a.json');
  assert.equal(await readRecord(path), undefined);
  await writeRecord(path, { name: 'é', list: [1, null] });
  assert.deepEqual(await readRecord(path), { name: 'é', list: [1, null] });
  await writeRecord(path, 'second');
  assert.equal(await readRecord(path), 'second');
  assert.deepEqual(await readdir(dir), ['a.json']);
  await removeRecord(path);
  await removeRecord(path);
  assert.equal(await readRecord(path), undefined);
});

test('many concurrent writes all become durable and leave no temporary file', async () => {
  await Promise.all(Array.from({ length: 100 }, (_, i) => writeRecord(join(dir, `b${i % 10}.json`), i)));
  const names = await readdir(dir);
  assert.equal(names.length, 10);
  for (const name of names) await removeRecord(join(dir, name));
});

test('damaged and newer records are data loss, not silence', async () => {
  const path = join(dir, 'c.json');
  for (const text of ['', '{"version":1,"val', '[]', 'null', '{"value":1}', '{"version":2,"value":1}']) {
    await writeFile(path, text);
    await assert.rejects(readRecord(path), (error) => isEngineError(error, 'data-loss'), text);
  }
  await removeRecord(path);
});

test('a failed write changes nothing and reports the errno', async () => {
  await assert.rejects(writeRecord(join(dir, 'missing', 'd.json'), 1), { code: 'ENOENT' });
  assert.equal(isTemporary('a.json.tmp-0123456789ab'), true);
  assert.equal(isTemporary('a.json'), false);
});
