import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { inTurns, type Parts } from './turns.js';

/** Work of so many parts, each of which takes a millisecond of the thread. */
function* slowly(parts: number): Parts<number> {
  for (let part = 0; part < parts; part++) {
    const end = performance.now() + 1;
    while (performance.now() < end);
    yield;
  }
  return parts;
}

describe('work in turns', () => {
  it('lets others go on between its slices, and all works together have one slice in each turn', async () => {
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    const works = [inTurns(slowly(40)), inTurns(slowly(40)), inTurns(slowly(40))];
    assert.deepEqual(await Promise.all(works), [40, 40, 40]);
    isOver = true;
    // 120 ms at no more than 4 ms, and one part, in a turn.
    assert.ok(turns >= 20, `${turns} turns`);
  });

  it('ends with its signal, and with its own error', async () => {
    const abort = new AbortController();
    const work = inTurns(slowly(1_000_000), abort.signal);
    setImmediate(() => abort.abort(new Error('enough')));
    await assert.rejects(work, { message: 'enough' });
    const failing = (function* (): Parts<void> {
      yield;
      throw new Error('broken');
    })();
    await assert.rejects(inTurns(failing), { message: 'broken' });
    assert.equal(await inTurns(slowly(1)), 1);
  });
});
