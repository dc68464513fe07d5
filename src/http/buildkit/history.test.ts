import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import { silentLog } from '../../../test/support/silent-log.js';
import { BuildHistory, type BuildRecord, type HistoryLimits } from './history.js';

const directory = mkdtempSync(join(tmpdir(), 'history-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const LIMITS: HistoryLimits = { maxAgeMs: 3_600_000, maxEntries: 50, maxLogBytes: 1000 };
let clock = 1000;

function begun(ref: string, pinned = false): BuildRecord {
  return {
    ref,
    frontend: 'dockerfile.v0',
    frontendAttrs: {},
    exporters: [],
    exporterResponse: {},
    pinned,
    createdMs: (clock += 1),
    counts: { total: 0, completed: 0, cached: 0, warnings: 0 },
  };
}

/** Keeps a build with a log of this size. */
async function ended(history: BuildHistory, ref: string, logBytes: number, pinned = false): Promise<void> {
  const record = begun(ref, pinned);
  writeFileSync(await history.begin(record), Buffer.alloc(logBytes));
  await history.complete({ ...record, completedMs: Date.now() }, [], Promise.resolve());
}

const refsOf = async (history: BuildHistory): Promise<string[]> => (await history.list()).ended.map(({ ref }) => ref);

test('the logs of old builds make room for those of new ones, over a restart, too', async () => {
  const history = new BuildHistory(directory, LIMITS, silentLog);
  await ended(history, 'kept', 400, true);
  await ended(history, 'a', 300);
  await ended(history, 'b', 300);
  assert.deepEqual(await refsOf(history), ['b', 'a', 'kept']);
  await ended(history, 'c', 300);
  assert.deepEqual(await refsOf(history), ['c', 'b', 'kept']);
  // A client may still read the log of the newest build.
  await ended(history, 'large', 5000);
  assert.deepEqual(await refsOf(history), ['large', 'kept']);
  const again = new BuildHistory(directory, LIMITS, silentLog);
  await ended(again, 'd', 10);
  assert.deepEqual(await refsOf(again), ['d', 'kept']);
});

test('a build that has ended is found before it is on the disk, and its documents when they are', async () => {
  const root = join(directory, 'early');
  const history = new BuildHistory(root, LIMITS, silentLog);
  const record = begun('early');
  await history.begin(record);
  let log = (): void => undefined;
  const logged = new Promise<void>((resolve) => (log = resolve));
  const bytes = Buffer.from('document');
  void history.complete(record, [{ kind: 'result', mediaType: 'text/plain', bytes }], logged);
  assert.deepEqual(await history.list().then(({ active }) => active), []);
  const [found] = (await history.list()).ended;
  const attachment = history.attachment(found?.attachments?.[0]?.digest ?? '');
  log();
  const { path, sizeBytes } = (await attachment) ?? assert.fail('the document is not there');
  assert.deepEqual([readFileSync(path, 'utf8'), sizeBytes], ['document', bytes.length]);
  await history.settled();
  const [kept] = (await new BuildHistory(root, LIMITS, silentLog).list()).ended;
  assert.deepEqual(kept, found);
  assert.deepEqual(readdirSync(dirname(await history.begin(begun('early')))), [], 'files of the build before');
});
