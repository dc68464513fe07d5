import assert from 'node:assert/strict';
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { createWorkerPool } from '../workers/pool.js';
import { endLoan, failLoan, LentWriter, makeLoan, SLOT_BYTES, type WriterLoan } from './lent-writer.js';
import { waitFor } from '../../test/support/wait.js';

const temp = mkdtempSync(join(tmpdir(), 'lent-writer-'));
const pool = createWorkerPool({ maxThreads: 2 });
after(async () => {
  await pool.close();
  rmSync(temp, { recursive: true });
});
const ROOT = { uid: 0, gid: 0 };

/** Lends a writer to `use`, and resolves when it has ended. */
async function lent(use: (writer: LentWriter, loan: WriterLoan) => Promise<void>): Promise<void> {
  const loan = makeLoan(ROOT);
  const served = pool.run('write-behind', loan);
  const writer = new LentWriter(loan);
  await waitFor('the writer to be there', () => writer.isPresent);
  await use(writer, loan);
  writer.end();
  await served;
}

const openFiles = (): number => readdirSync('/proc/self/fd').length;

test('parts of many slots come to their places in their files', async () => {
  await lent(async (writer) => {
    const before = openFiles();
    for (const name of ['one', 'two']) {
      const fd = openSync(join(temp, name), 'wx');
      const expected: Buffer[] = [];
      let total = 0;
      for (let number = 1; number <= 23; number++) {
        const slot = await writer.nextSlot();
        slot.fill(`${name} ${number} `);
        // Each in as many jobs as there may be.
        const length = number === 1 ? 100_000 : 64 * 1024;
        for (let at = 0; at + length <= slot.length; at += length) {
          assert.ok(writer.takes(slot, length));
          writer.give(fd, slot, at, length, total + at);
        }
        const written = slot.length - (slot.length % length);
        expected.push(Buffer.from(slot.subarray(0, written)));
        total += written;
      }
      writer.settle();
      closeSync(fd);
      assert.ok(readFileSync(join(temp, name)).equals(Buffer.concat(expected)), name);
    }
    assert.equal(openFiles(), before);
    assert.equal(writer.givenBytes, 2 * (500_000 + 22 * SLOT_BYTES));
  });
});

test('a slot is not filled again before it is written', async () => {
  const loan = makeLoan(ROOT);
  const writer = new LentWriter(loan);
  const fd = openSync(join(temp, 'late'), 'wx');
  for (const letter of ['a', 'b', 'c', 'd']) {
    const slot = await writer.nextSlot();
    slot.fill(letter);
    writer.give(fd, slot, 0, slot.length, 'abcd'.indexOf(letter) * SLOT_BYTES);
  }
  let isFree = false;
  const next = Promise.resolve(writer.nextSlot()).then((slot) => {
    isFree = true;
    return slot;
  });
  // The event loop of a thread that waits for a slot goes on.
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
  assert.equal(isFree, false);
  const served = pool.run('write-behind', loan);
  (await next).fill('e');
  writer.settle();
  assert.ok(
    readFileSync(join(temp, 'late')).equals(
      Buffer.concat(['a', 'b', 'c', 'd'].map((letter) => Buffer.alloc(SLOT_BYTES, letter))),
    ),
  );
  closeSync(fd);
  writer.end();
  await served;
});

test('the error of a write is told by what comes next, and nothing is written after it', async () => {
  await lent(async (writer) => {
    const fd = openSync('/dev/full', 'w');
    const before = openFiles();
    const slot = await writer.nextSlot();
    writer.give(fd, slot, 0, slot.length, 0);
    const noSpace = { code: 'ENOSPC', errno: -28 };
    assert.throws(() => writer.settle(), noSpace);
    assert.throws(() => writer.give(fd, slot, 0, slot.length, 0), noSpace);
    assert.equal(writer.isIdle, false);
    assert.throws(() => writer.settle(), noSpace);
    assert.equal(openFiles(), before);
    closeSync(fd);
  });
});

test('a writer whose thread has failed is an error for who has given it something, and else none', async () => {
  const unborn = makeLoan(ROOT);
  const writer = new LentWriter(unborn);
  failLoan(unborn);
  assert.equal(writer.isPresent, false);
  writer.settle();
  writer.end();
  await pool.run('write-behind', unborn);
  await lent(async (borrower, loan) => {
    const fd = openSync(join(temp, 'failed'), 'wx');
    const slot = await borrower.nextSlot();
    borrower.give(fd, slot, 0, slot.length, 0);
    failLoan(loan);
    assert.equal(borrower.isPresent, false);
    assert.throws(() => borrower.settle(), { code: 'EIO' });
    closeSync(fd);
  });
});

test('a thread that writes for another one, and has nothing to do, can be ended', async () => {
  const closing = createWorkerPool({ maxThreads: 1 });
  const loan = makeLoan(ROOT);
  const ended = assert.rejects(closing.run('write-behind', loan));
  const writer = new LentWriter(loan);
  await waitFor('the writer to be there', () => writer.isPresent);
  await closing.close();
  await ended;
});

test('a loan that is over before the writer comes keeps no thread', async () => {
  const loan = makeLoan(ROOT);
  endLoan(loan);
  await pool.run('write-behind', loan);
});
