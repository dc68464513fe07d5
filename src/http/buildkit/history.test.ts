import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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
  const path = await history.begin(record);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, Buffer.alloc(logBytes));
  await history.complete({ ...record, completedMs: Date.now() }, [], Promise.resolve(undefined));
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

test('old builds are forgotten when enough are newer, but for pinned ones', async () => {
  const limits = { ...LIMITS, maxAgeMs: 0, maxEntries: 2 };
  const history = new BuildHistory(join(directory, 'old'), limits, silentLog);
  await ended(history, 'kept', 1, true);
  for (const ref of ['a', 'b', 'c']) await ended(history, ref, 1);
  assert.deepEqual(await refsOf(history), ['c', 'b', 'kept']);
  await history.begin(begun('active'));
  const { active, ended: past } = await history.list(true);
  assert.deepEqual([active.map(({ ref }) => ref), past], [['active'], []]);
});

/** Ends a build with a document and a log, reads both while they are written, and what a later daemon knows of it. */
async function endAndRead(
  root: string,
  document: Buffer,
  messages: readonly string[],
): Promise<{ readonly read: string[]; readonly names: string[] }> {
  const history = new BuildHistory(root, LIMITS, silentLog);
  const record = begun('early');
  const path = await history.begin(record);
  assert.ok(!existsSync(dirname(path)), 'files of the build before');
  let log: (bytes: Buffer) => void = () => undefined;
  const logged = new Promise<Buffer>((resolve) => (log = resolve));
  void history.complete(record, [{ kind: 'result', mediaType: 'text/plain', bytes: document }], logged);
  assert.deepEqual(await history.list().then(({ active }) => active), []);
  const [found] = (await history.list()).ended;
  const digest = found?.attachments?.[0]?.digest ?? '';
  const early = history.attachment(digest);
  log(
    Buffer.concat(
      messages.map((text) => {
        const message = Buffer.alloc(4 + Buffer.byteLength(text));
        message.writeUInt32BE(Buffer.byteLength(text));
        message.write(text, 4);
        return message;
      }),
    ),
  );
  const read: string[] = [];
  await history.settled();
  const later = new BuildHistory(root, LIMITS, silentLog);
  assert.deepEqual((await later.list()).ended, [found]);
  await later.pin('early', true);
  for (const attachment of [await early, await later.attachment(digest)]) {
    const { content, sizeBytes } = attachment ?? assert.fail('the document is not there');
    const bytes = typeof content === 'string' ? readFileSync(content) : content;
    assert.equal(sizeBytes, bytes.length);
    read.push(bytes.toString());
  }
  for await (const message of (await later.log('early')) ?? assert.fail('there is no log'))
    read.push(message.toString());
  const names = readdirSync(dirname(path));
  // A build of the same name is a new one.
  await later.begin(begun('early'));
  return { read, names };
}

test('a build that has ended is found before it is on the disk, and its log and documents when they are', async () => {
  const root = join(directory, 'early');
  const short = await endAndRead(root, Buffer.from('document'), ['one', 'two']);
  assert.deepEqual(short, { read: ['document', 'document', 'one', 'two'], names: ['record.json'] });
  const text = 'long '.repeat(50_000);
  const { read, names } = await endAndRead(root, Buffer.from(text), ['one']);
  assert.deepEqual(read, [text, text, 'one']);
  assert.equal(names.length, 3, `a record, a document and a log: ${names.join()}`);
});
