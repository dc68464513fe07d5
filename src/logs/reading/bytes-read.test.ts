import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import type { LogReadOptions } from '../../ports/logs.js';
import { readAll, logFixture, writeAll } from '../log-fixture.js';

const LINES = 60_000;
/** Finding a place in a file may read so many bytes (some blocks), whatever the size of the file. */
const FEW_BYTES = 4 << 20;

/** Returns the bytes that this process has read so far. */
async function bytesRead(): Promise<number> {
  return Number(/rchar: (\d+)/.exec(await readFile('/proc/self/io', 'utf8'))?.[1]);
}

for (const driver of ['json-file', 'local']) {
  test(`${driver}: the end, the latest and the oldest of a large log are read without the rest`, async (t) => {
    const { open } = await logFixture(t, driver);
    const log = await open({ options: driver === 'local' ? { 'max-size': '1g' } : {} });
    const line = (i: number): string => `${String(i).padStart(8, '0')} ${'x'.repeat(190)}\n`;
    await writeAll(
      log,
      'stdout',
      Array.from({ length: LINES / 500 }, (_, chunk) =>
        Buffer.from(Array.from({ length: 500 }, (_, i) => line(chunk * 500 + i)).join('')),
      ),
    );
    const middle = BigInt(Date.now()) * 1_000_000n;
    await new Promise((resolve) => setTimeout(resolve, 20));
    log.write('stdout', Buffer.from(line(LINES)));
    await log.close();
    const cost = async (options: Partial<LogReadOptions>, expected: string): Promise<void> => {
      const before = await bytesRead();
      assert.equal((await readAll(log, options)).toString(), expected);
      const cost = (await bytesRead()) - before;
      assert.ok(cost < FEW_BYTES, `${cost} bytes`);
    };
    await cost({ tail: 2 }, line(LINES - 1) + line(LINES));
    await cost({ tail: 0 }, '');
    await cost({ sinceNs: middle + 5_000_000n }, line(LINES));
    await cost({ untilNs: 1n }, '');
    const before = await bytesRead();
    assert.equal((await readAll(log)).length, line(0).length * (LINES + 1));
    assert.ok((await bytesRead()) - before > LINES * 200, 'the measure sees nothing');
  });
}
