import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeRecord } from './record-store.js';
import { readRunRecord, writeRunRecord } from './run-record.js';

test('a record for the run counts in this run of the machine, and until the durable one is written again', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'run-record-'));
  const [run, durable] = [join(dir, 'run.json'), join(dir, 'durable.json')];
  const read = (): Promise<unknown> => readRunRecord(run, durable);
  try {
    await assert.rejects(writeRunRecord(run, durable, 'of nothing'), { code: 'ENOENT' });
    await writeRecord(durable, 'created');
    assert.equal(await read(), undefined);
    await writeRunRecord(run, durable, 'starting');
    await writeRunRecord(run, durable, 'running');
    assert.equal(await read(), 'running');
    const text = await readFile(run, 'utf8');
    const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
    await writeFile(run, text.replace(boot, '00000000-0000-0000-0000-000000000000'));
    assert.equal(await read(), undefined);
    for (const torn of ['', text.slice(0, -5), 'null', '\0'.repeat(text.length)]) {
      await writeFile(run, torn);
      assert.equal(await read(), undefined);
    }
    await writeRunRecord(run, durable, 'paused');
    await writeRecord(durable, 'exited');
    assert.equal(await read(), undefined);
    assert.deepEqual((await readdir(dir)).sort(), ['durable.json', 'run.json']);
  } finally {
    await rm(dir, { recursive: true });
  }
});
