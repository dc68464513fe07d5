import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeMessage, humanSize, progressBar, stateMessage } from './progress.js';
import { ProgressBoard } from './progress-board.js';

test('sizes have four significant digits and decimal units', () => {
  const table: readonly (readonly [number, string])[] = [
    [0, '0B'],
    [999, '999B'],
    [1000, '1kB'],
    [1234, '1.234kB'],
    [12_345, '12.35kB'],
    [123_456, '123.5kB'],
    [1_000_000, '1MB'],
    [2_813_316, '2.813MB'],
    [3e9, '3GB'],
    [5.5e12, '5.5TB'],
  ];
  for (const [bytes, text] of table) assert.equal(humanSize(bytes), text);
});

test('the bar is that of the known clients', () => {
  assert.equal(progressBar(0, 0), '');
  assert.equal(progressBar(0, 100), `[>${' '.repeat(50)}]       0B/100B`);
  assert.equal(progressBar(1000, 2000), `[${'='.repeat(25)}>${' '.repeat(25)}]      1kB/2kB`);
  assert.equal(progressBar(2000, 2000), `[${'='.repeat(50)}>]      2kB/2kB`);
  assert.equal(progressBar(2001, 2000), `[${'='.repeat(50)}>]  2.001kB`);
  assert.equal(progressBar(5, 0), '      5B');
});

test('messages end with CR LF', () => {
  assert.equal(
    encodeMessage(stateMessage('Waiting', 'abc')),
    '{"status":"Waiting","progressDetail":{},"id":"abc"}\r\n',
  );
});

const read = async (reader: AsyncIterable<string>): Promise<string[]> => {
  let text = '';
  for await (const piece of reader) text += piece;
  return text
    .split('\r\n')
    .filter((line) => line !== '')
    .map((line) => (JSON.parse(line) as { status: string }).status);
};

test('a fast reader gets everything, a slow one the newest of each status, a late one that of each layer', async () => {
  const board = new ProgressBoard();
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
  const board = new ProgressBoard();
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
  const board = new ProgressBoard();
  const readers = Array.from({ length: 1000 }, () => board.read(() => undefined));
  for (let bytes = 0; bytes < 200; bytes++)
    board.publish(`layer-${bytes % 5}`, 'Downloading', { status: String(bytes) });
  assert.equal(readers.length, 1000);
});
