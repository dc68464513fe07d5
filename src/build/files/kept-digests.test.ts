import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, beforeEach, test } from 'node:test';
import { waitFor } from '../../../test/support/wait.js';
import { setXattr } from '../../sys/files/xattr.js';
import { digestSources } from './copy-files.js';
import { KeptDigests } from './kept-digests.js';

const dir = await mkdtemp(join(tmpdir(), 'digests-'));
const root = join(dir, 'root');
const digests = join(dir, 'digests');
const file = join(root, 'a/file');
const TIME = new Date('2024-01-01T00:00:00Z');

after(() => rmSync(dir, { recursive: true }));

beforeEach(async () => {
  rmSync(root, { recursive: true, force: true });
  rmSync(digests, { force: true });
  mkdirSync(join(root, 'a'), { recursive: true });
  write('first');
  writeFileSync(join(root, 'other'), 'never changed');
  await waitFor(
    'both files to be remembered',
    () => digestOf() !== '' && isKnown(file) && isKnown(join(root, 'other')),
  );
});

function write(content: string): void {
  writeFileSync(file, content);
  utimesSync(file, TIME, TIME);
}

const tree = (kept: string | undefined) => [{ root, digests: kept, sources: ['/'], ignore: [], exclude: [] }];
const digestOf = (): string => digestSources({ trees: tree(digests), ignoresOwners: false }).hex;
/** The same without any memory. */
const trueDigest = (): string => digestSources({ trees: tree(undefined), ignoresOwners: false }).hex;

function isKnown(path: string): boolean {
  const stat = lstatSync(path, { bigint: true });
  return new KeptDigests(digests, stat.dev).find(stat) !== undefined;
}

/** Changes the bytes behind the hash of the whole, which fits again. */
function forge(change: (body: Buffer) => void): void {
  const body = Buffer.from(readFileSync(digests).subarray(32));
  change(body);
  writeFileSync(digests, Buffer.concat([createHash('sha256').update(body).digest(), body]));
}

test('digests of files that have not changed are taken from the memory', () => {
  const before = digestOf();
  assert.equal(before, trueDigest());
  forge((body) => body.fill(0, 36 + 32, 36 + 64));
  assert.notEqual(digestOf(), before);
});

test('a change of the content is noticed when size and time are as before', () => {
  const before = digestOf();
  write('other');
  assert.equal(lstatSync(file).mtimeMs, TIME.getTime());
  assert.notEqual(digestOf(), before);
  assert.equal(digestOf(), trueDigest());
});

test('another file in the same place, and an attribute that is added, are noticed', () => {
  const before = digestOf();
  writeFileSync(join(dir, 'twin'), 'other');
  utimesSync(join(dir, 'twin'), TIME, TIME);
  renameSync(join(dir, 'twin'), file);
  const replaced = digestOf();
  assert.notEqual(replaced, before);
  assert.equal(replaced, trueDigest());
  setXattr(join(root, 'other'), 'user.mark', Buffer.from('1'));
  assert.notEqual(digestOf(), replaced);
  assert.equal(digestOf(), trueDigest());
});

test('a file is not remembered while a change could still get its time', () => {
  const { ctimeNs, dev, ...rest } = lstatSync(file, { bigint: true });
  const known = new KeptDigests(join(dir, 'none'), dev);
  const noted = (change: bigint, now: bigint): boolean => {
    const stat = { ...rest, dev, ctimeNs: change };
    known.note(stat, now, Buffer.alloc(32));
    return known.find(stat) !== undefined;
  };
  assert.equal(noted(ctimeNs, ctimeNs + 20_000_000n), false);
  assert.equal(noted(ctimeNs, ctimeNs + 2_000_000_000n), ctimeNs % 1_000_000_000n !== 0n);
  // Such a time is of a file system that has no parts of seconds.
  assert.equal(noted(7_000_000_000n, 8_500_000_000n), false);
  assert.equal(noted(7_000_000_000n, 11_000_000_000n), true);
});

test('a memory that is torn, of another start of the machine or of another device counts for nothing', () => {
  const right = digestOf();
  const whole = readFileSync(digests);
  for (const length of [0, 31, 32, 68, whole.length - 64, whole.length - 1]) {
    writeFileSync(digests, whole.subarray(0, length));
    assert.equal(isKnown(file), false, `${length} bytes`);
    assert.equal(digestOf(), right);
  }
  writeFileSync(digests, Buffer.concat([whole, Buffer.alloc(64)]));
  assert.equal(isKnown(file), false);
  writeFileSync(digests, whole);
  forge((body) => body.fill('0', 0, 36));
  assert.equal(isKnown(file), false);
  writeFileSync(digests, whole);
  const stat = lstatSync(file, { bigint: true });
  assert.equal(new KeptDigests(digests, stat.dev + 1n).find(stat), undefined);
  rmSync(digests);
  mkdirSync(digests);
  assert.equal(digestOf(), right);
  rmSync(digests, { recursive: true });
});

test('a large file that has just been written is waited for, so that the next build does not read it', () => {
  const large = join(root, 'large');
  writeFileSync(large, '');
  truncateSync(large, 64 << 20);
  const digest = digestOf();
  const { ctimeNs } = lstatSync(large, { bigint: true });
  // Where the file system keeps whole seconds nobody waits.
  assert.ok(isKnown(large) || ctimeNs % 1_000_000_000n === 0n);
  assert.equal(digestOf(), digest);
  assert.equal(trueDigest(), digest);
});
