import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ProgressBoard } from './progress-board.js';

const newBoard = (): ProgressBoard<object> => new ProgressBoard((fact) => `${JSON.stringify(fact)}\r\n`);
const read = async (reader: AsyncIterable<string>): Promise<string[]> => {
  let text = '';
  for await (const piece of reader) text += piece;
  return text
    .split('\r\n')
    .filter((line) => line !== '')
    .map((line) => (JSON.parse(line) as { status: string }).status);
};

test('a fast reader gets everything, a slow one the newest of each status, a late one that of each layer', async () => {
  const board = newBoard();
  let closed = 0;
  const onClose = (): number => closed++;
  board.say({ status: 'begin' });
  const fast = board.read(onClose);
  const slow = board.read(onClose);
  const seen: string[] = [];
  const reading = (async () => {
    for await (const piece of fast) seen.push(...piece.split('\r\n').filter((line) => line !== ''));
  })();
  for (let bytes = 0; bytes < 100; bytes++) {
    board.publish('layer', 'Downloading', { status: `Downloading ${bytes}` });
    await new Promise((resolve) => setImmediate(resolve));
  }
  board.publish('layer', 'Done', { status: 'Done' });
  const late = read(board.read(onClose));
  board.say({ status: 'end' });
  assert.equal(closed, 0, 'all of them still read');
  board.end();
  assert.equal(closed, 3);
  await reading;
  assert.equal(seen.length, 103);
  assert.deepEqual(await read(slow), ['begin', 'Downloading 99', 'Done', 'end']);
  assert.deepEqual(await late, ['begin', 'Done', 'end']);
  assert.deepEqual(await read(board.read(onClose)), ['begin', 'Done', 'end']);
  assert.equal(closed, 4);
});

test('returning a reader settles its pending read and tells the owner once', async () => {
  const board = newBoard();
  let left = 0;
  const reader = board.read(() => left++);
  const pending = reader.next();
  await reader.return();
  await reader.return();
  assert.deepEqual(await pending, { done: true, value: undefined });
  assert.equal(left, 1);
  board.say({ status: 'unheard' });
  board.end();
});

test('a thousand stalled readers hold no more than the newest messages', () => {
  const board = newBoard();
  const readers = Array.from({ length: 1000 }, () => board.read(() => undefined));
  for (let bytes = 0; bytes < 200; bytes++)
    board.publish(`layer-${bytes % 5}`, 'Downloading', { status: String(bytes) });
  assert.equal(readers.length, 1000);
});
