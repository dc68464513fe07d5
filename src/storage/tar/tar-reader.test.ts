import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { encodeHeader, END_OF_ARCHIVE, padding } from './header-writer.js';
import { TarReader } from './tar-reader.js';

const dir = mkdtempSync(join(tmpdir(), 'tar-reader-'));
after(() => rmSync(dir, { recursive: true }));

/** Entries as `type name -> link: content`, the archive given in portions. */
async function read(archive: Buffer, portion: number): Promise<string[]> {
  const entries: string[] = [];
  const reader = new TarReader(({ type, name, linkName }) => {
    const at = entries.push(`${type} ${name}${linkName === '' ? '' : ` -> ${linkName}`}`) - 1;
    if (type !== '0') return undefined;
    let content = '';
    return {
      data: (chunk) => void (content += chunk.toString('latin1')),
      end: () => void (entries[at] += `: ${content.length > 20 ? content.length : content}`),
    };
  });
  for (let at = 0; at < archive.length; at += portion) await reader.write(archive.subarray(at, at + portion));
  reader.end();
  return entries;
}

test('archives of GNU tar in its formats, in portions of any size', async () => {
  const long = `${'deep/'.repeat(30)}${'n'.repeat(120)}`;
  mkdirSync(join(dir, 'in', 'deep/'.repeat(30)), { recursive: true });
  writeFileSync(join(dir, 'in', long), 'long');
  writeFileSync(join(dir, 'in/empty'), '');
  writeFileSync(join(dir, 'in/large'), 'x'.repeat(9000));
  symlinkSync('large', join(dir, 'in/link'));
  for (const format of ['gnu', 'pax', 'posix']) {
    const archive = execFileSync(
      'tar',
      ['-C', join(dir, 'in'), `--format=${format}`, '-cf', '-', 'empty', 'large', 'link', long],
      { maxBuffer: 1 << 24 },
    );
    for (const portion of [1, 511, 513, 4096, archive.length]) {
      assert.deepEqual(
        await read(archive, portion),
        ['0 empty: ', '0 large: 9000', '2 link -> large', `0 ${long}: long`],
        `${format} by ${portion}`,
      );
    }
  }
});

test('files longer than 4 and 8 GiB are followed by the next entry', async () => {
  const chunk = Buffer.alloc(1 << 20);
  for (const sizeBytes of [2 ** 32 - 1, 2 ** 32 + 1, 5 * 2 ** 30, 9 * 2 ** 30 + 513]) {
    const entry = { type: '0' as const, mode: 0o644, uid: 0, gid: 0, mtimeSeconds: 0 };
    const seen: string[] = [];
    let read = 0;
    const reader = new TarReader(({ name }) => {
      seen.push(name);
      return { data: (content) => void (read += content.length), end: () => void seen.push(String(read)) };
    });
    await reader.write(encodeHeader({ ...entry, name: 'vast', sizeBytes }));
    let left = sizeBytes + padding(sizeBytes).length;
    for (; left > 0; left -= chunk.length) await reader.write(chunk.subarray(0, Math.min(left, chunk.length)));
    await reader.write(encodeHeader({ ...entry, name: 'next', sizeBytes: 0 }));
    reader.end();
    assert.deepEqual(seen, ['vast', String(sizeBytes), 'next', String(sizeBytes)]);
  }
});

test('a size that no file has is refused by name, in the header and in an extended one', async () => {
  const entry = (sizeBytes: number): Buffer =>
    encodeHeader({ type: '0', name: 'vast', mode: 0o644, uid: 0, gid: 0, sizeBytes, mtimeSeconds: 0 });
  const record = '24 size=281474976710656\n';
  const pax = Buffer.concat([
    encodeHeader({
      type: 'x' as '0',
      name: 'x',
      mode: 0o644,
      uid: 0,
      gid: 0,
      sizeBytes: record.length,
      mtimeSeconds: 0,
    }),
    Buffer.from(record),
    padding(record.length),
  ]);
  for (const archive of [entry(2 ** 48), Buffer.concat([pax, entry(0)])]) {
    await assert.rejects(
      read(archive, 512),
      (error) =>
        isEngineError(error, 'invalid') &&
        error.message === 'tar entry "vast" has a size out of range: 281474976710656',
    );
  }
  await assert.rejects(read(entry(2 ** 48 - 1), 512), /unexpected EOF/);
});

test('what is cut off, empty or no tar is refused', async () => {
  const header = encodeHeader({ type: '0', name: 'a', mode: 0o644, uid: 0, gid: 0, sizeBytes: 600, mtimeSeconds: 0 });
  const whole = Buffer.concat([header, Buffer.alloc(600), padding(600), END_OF_ARCHIVE]);
  assert.deepEqual(await read(whole, 100), ['0 a: 600']);
  // The padding and the end may be missing; content must not.
  assert.deepEqual(await read(whole.subarray(0, 512 + 600), 100), ['0 a: 600']);
  for (const bad of [whole.subarray(0, 700), whole.subarray(0, 100), Buffer.alloc(0), Buffer.alloc(2048, 1)]) {
    await assert.rejects(read(bad, 512), (error) => isEngineError(error, 'invalid'));
  }
});
