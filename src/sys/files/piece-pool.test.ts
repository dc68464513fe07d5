/** Memory of pieces is lent to one at a time. */
import assert from 'node:assert/strict';
import test from 'node:test';
import { givePiece, keepPiece, PIECE_BYTES, takePiece } from './piece-pool.js';

test('the memory of a piece is lent again once it was given back, and only once', () => {
  const first = takePiece(PIECE_BYTES);
  givePiece(first.subarray(10));
  givePiece(first);
  const [second, third] = [takePiece(100_000), takePiece(PIECE_BYTES + 256)];
  assert.equal(second.buffer, first.buffer);
  assert.notEqual(third.buffer, first.buffer);
  assert.deepEqual([second.length, third.length], [100_000, PIECE_BYTES + 256]);
  keepPiece(second);
  givePiece(second);
  assert.notEqual(takePiece(PIECE_BYTES).buffer, first.buffer);
});

test('small and very large pieces have memory of their own', () => {
  for (const bytes of [0, 1000, 2 * PIECE_BYTES]) {
    const piece = takePiece(bytes);
    assert.equal(piece.length, bytes);
    givePiece(piece);
    assert.notEqual(takePiece(PIECE_BYTES).buffer, piece.buffer);
  }
});
