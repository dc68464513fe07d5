import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeRecord } from './record-store.js';
import { identityOf, readRunRecord, writeRunRecord } from './run-record.js';

/** One is mostly on a disk, the other in memory. */
for (const root of [tmpdir(), '/dev/shm'])
  test(`a record for the run counts until its end, or that of the durable one, in ${root}`, async () => {
    const dir = await mkdtemp(join(root, 'run-record-'));
    const [run, durable] = [join(dir, 'run.json'), join(dir, 'durable.json')];
    const read = (): Promise<unknown> => readRunRecord(run, durable);
    try {
      await assert.rejects(identityOf(durable), { code: 'ENOENT' });
      const write = async (value: string): Promise<void> => writeRunRecord(run, await identityOf(durable), value);
      await writeRecord(durable, 'created');
      assert.equal(await read(), undefined);
      await write('starting');
      await write('running');
      assert.equal(await read(), 'running');
      const text = await readFile(run, 'utf8');
      const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
      await writeFile(run, text.replace(boot, '00000000-0000-0000-0000-000000000000'));
      assert.equal(await read(), undefined);
      for (const torn of ['', text.slice(0, -5), 'null', '\0'.repeat(text.length)]) {
        await writeFile(run, torn);
        assert.equal(await read(), undefined);
      }
      await write('paused');
      await writeRecord(durable, 'exited');
      assert.equal(await read(), undefined);
      assert.deepEqual((await readdir(dir)).sort(), ['durable.json', 'run.json']);
    } finally {
      await rm(dir, { recursive: true });
    }
  });
