import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { ImageTar } from './image-tar.js';

async function bytesOf(archive: ImageTar): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of archive.chunks) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test('tar reads every time, also those before 1970 and after 2038', async () => {
  const times = [0, 1_700_000_000, 2 ** 31 - 1, 2 ** 31, 7_258_118_400, -86_400];
  const archive = new ImageTar();
  const reading = bytesOf(archive);
  await archive.directory('of');
  for (const mtimeSeconds of times)
    await archive.file(`of/${mtimeSeconds}`, { sizeBytes: 3, mtimeSeconds }, Readable.from([Buffer.from('abc')]));
  archive.end();
  const { stdout, stderr } = spawnSync('tar', ['-tvf', '-', '--full-time'], {
    input: await reading,
    encoding: 'utf8',
    env: { ...process.env, TZ: 'UTC' },
  });
  assert.equal(stderr, '');
  const lines = stdout.trim().split('\n');
  assert.match(lines[0] ?? '', /^drwxr-xr-x 0\/0 +0 1970-01-01 00:00:00 of/);
  for (const [at, seconds] of times.entries()) {
    const shown = new Date(seconds * 1000).toISOString().replace('T', ' ').slice(0, 19);
    assert.match(lines[at + 1] ?? '', new RegExp(`^-rw-r--r-- 0/0 +3 ${shown} of/${seconds}$`));
  }
});

test('the archive fails with its content, and when that has another size', async () => {
  const facts = { sizeBytes: 4, mtimeSeconds: 0 };
  const broken = new Readable({ read: (): void => void broken.destroy(new Error('damaged')) });
  for (const [content, reason] of [
    [Readable.from([Buffer.from('abc')]), /Size mismatch/],
    [broken, /damaged/],
  ] as const) {
    const archive = new ImageTar();
    const reading = assert.rejects(bytesOf(archive), reason);
    await assert.rejects(archive.file('f', facts, content), reason);
    await reading;
  }
});

test('content is read as the archive is, and no more when that is given up', async () => {
  const archive = new ImageTar();
  let madeChunks = 0;
  const content = new Readable({
    highWaterMark: 1,
    read() {
      madeChunks++;
      this.push(Buffer.alloc(64 * 1024));
    },
  });
  const filled = assert.rejects(archive.file('f', { sizeBytes: 2 ** 40, mtimeSeconds: 0 }, content));
  const chunks = archive.chunks[Symbol.asyncIterator]();
  for (let count = 0; count < 20; count++) await chunks.next();
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(madeChunks < 25, `${madeChunks} chunks were made for 20`);
  await chunks.return?.();
  await filled;
  assert.equal(content.destroyed, true);
});
