import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { decode } from './grpc-messages.js';
import { messagesOf, ProgressLog } from './progress-log.js';
import { StatusResponseSchema } from './proto/gen/control_pb.js';

const MIB = 1024 * 1024;
const directory = mkdtempSync(join(tmpdir(), 'progress-'));
after(() => rmSync(directory, { recursive: true, force: true }));

/** Tells 32 MiB, of which each MiB begins with its number, and returns the numbers that a late reader gets. */
async function told(path: string, maxBytes?: number): Promise<number[]> {
  const progress = new ProgressLog(path, maxBytes);
  for (let number = 0; number < 32; number++) {
    const piece = Buffer.alloc(MIB);
    piece.writeUInt32BE(number);
    progress.log('sha256:1', 1, piece);
    await progress.ready();
  }
  await progress.end();
  const numbers: number[] = [];
  for await (const message of progress.read())
    for (const { msg } of decode(StatusResponseSchema, message).logs) numbers.push(Buffer.from(msg).readUInt32BE());
  return numbers;
}

const ALL = Array.from({ length: 32 }, (_, number) => number);

test('a late reader gets everything from the disk', async () => {
  assert.deepEqual(await told(join(directory, 'log')), ALL);
});

test('a disk that is full costs the oldest lines, not memory', async () => {
  const numbers = await told('/dev/full');
  assert.deepEqual(numbers, ALL.slice(-numbers.length));
  assert.ok(numbers.length > 0 && numbers.length <= 9, String(numbers.length));
});

test('a log that is long enough is not written on, and the newest lines are in memory', async () => {
  const path = join(directory, 'long');
  const numbers = await told(path, 10 * MIB);
  const size = statSync(path).size;
  assert.ok(size > 10 * MIB && size < 12 * MIB, String(size));
  assert.deepEqual(numbers.slice(0, 10), ALL.slice(0, 10));
  assert.equal(numbers.at(-1), ALL.at(-1));
  assert.ok(numbers.length < 25, String(numbers.length));
});

test('a short log is read along from memory, and is handed over when the build ends', async () => {
  const path = join(directory, 'short');
  const progress = new ProgressLog(path);
  const reading = progress.read();
  const come: Buffer[] = [];
  for (let number = 0; number < 3; number++) {
    progress.log('sha256:1', 1, Buffer.from(`line ${number}`));
    come.push((await reading.next()).value as Buffer);
  }
  const kept: Buffer[] = [];
  for await (const message of messagesOf((await progress.end()) ?? assert.fail('no log'))) kept.push(message);
  assert.ok(!existsSync(path), 'written');
  assert.deepEqual(kept, come);
  assert.equal((await reading.next()).done, true);
});

test('a warning brings the end of its step again that an earlier message has told', async () => {
  const progress = new ProgressLog(undefined);
  const reading = progress.read();
  const step = { digest: 'sha256:1', inputs: [], name: 'load', cached: false, started: 1 };
  const warning = { vertex: step.digest, level: 1, short: 'short', detail: [], url: '', ranges: [] };
  const next = async (): Promise<{ readonly ends: boolean[]; readonly warnings: number }> => {
    const { vertexes, warnings } = decode(StatusResponseSchema, (await reading.next()).value as Buffer);
    return { ends: vertexes.map(({ completed }) => completed !== undefined), warnings: warnings.length };
  };
  progress.vertex(step);
  progress.warning(warning);
  assert.deepEqual(await next(), { ends: [false], warnings: 1 });
  progress.warning(warning);
  progress.vertex({ ...step, completed: 2 });
  progress.warning(warning);
  assert.deepEqual(await next(), { ends: [true], warnings: 2 });
  progress.warning(warning);
  progress.warning(warning);
  assert.deepEqual(await next(), { ends: [true], warnings: 2 });
  assert.equal(progress.counts.total, 1);
  await progress.end();
});
