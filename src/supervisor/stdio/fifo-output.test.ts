/** Output of a high rate is taken in large pieces, and all other output at once. */
import assert from 'node:assert/strict';
import { closeSync, constants, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { makeFifo } from '../../sys/files/inode.js';
import { FifoOutput, readPiece, type PieceKeeper } from './fifo-output.js';

const KEEPER: PieceKeeper = { isFull: false, onceRoom: () => assert.fail('there is room'), take: readPiece };

/** An output with its writing end, and the sizes of the pieces that it yields. Rests end only when a test says so. */
function scene(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), 'fifo-output-'));
  const path = join(dir, 'stdout');
  makeFifo(path);
  const output = new FifoOutput(path);
  const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  t.after(() => {
    output.destroy();
    closeSync(writer);
    rmSync(dir, { recursive: true });
  });
  t.mock.timers.enable({ apis: ['setTimeout'] });
  output.keepIn(KEEPER, Buffer.alloc(0));
  const pieces: number[] = [];
  output.on('data', (piece: Buffer) => pieces.push(piece.length));
  const write = (bytes: number): void => assert.equal(writeSync(writer, Buffer.alloc(bytes)), bytes);
  return { pieces, write };
}

/** The event loop has told of everything that there is. */
async function settled(): Promise<void> {
  for (let i = 0; i < 20; i++) await turn();
}

/** Waits without a time-out, which would be held here. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await turn();
}

test('an answer is taken at once, however many there are', async (t) => {
  const { pieces, write } = scene(t);
  for (let i = 1; i <= 100; i++) {
    write(100);
    await until(() => pieces.length === i);
  }
});

test('a flood gathers in a pipe that has got room for it, until the rest is over', async (t) => {
  const { pieces, write } = scene(t);
  write(16 << 10);
  await until(() => pieces.length === 1);
  for (let i = 0; i < 50; i++) write(4 << 10);
  await settled();
  assert.deepEqual(pieces, [16 << 10]);
  t.mock.timers.tick(2);
  await until(() => pieces.length > 1);
  assert.ok((pieces[1] ?? 0) >= 64 << 10, `a piece of ${pieces[1]} bytes`);
});
