import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { pullBigImage } from './pull.js';
import { randomOrders, spreadOf, verdictOf, withDriver } from './verdict.js';

const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

describe('verdicts of the bench', () => {
  it('gives the interval of the sign test', () => {
    assert.deepEqual(spreadOf([3, 1, 2, 4]), { middle: 2.5 });
    assert.deepEqual(spreadOf([5, 1, 2, 4, 3]), { middle: 3, interval: [1, 5] });
    // Tables of the sign test have these for an error of at most a tenth.
    assert.deepEqual(spreadOf(upTo(7)).interval, [1, 7]);
    assert.deepEqual(spreadOf(upTo(8)).interval, [2, 7]);
    assert.deepEqual(spreadOf(upTo(15)).interval, [4, 12]);
    assert.equal(spreadOf([1, 2, 3, 4, Number.NaN]).interval, undefined);
  });

  it('judges only where the whole interval is on one side', () => {
    const atMost = { target: 0.5, moreIsBetter: false };
    const atLeast = { target: 2, moreIsBetter: true };
    assert.equal(verdictOf({ middle: 0.4, interval: [0.3, 0.5] }, atMost), 'reached');
    assert.equal(verdictOf({ middle: 0.4, interval: [0.3, 0.6] }, atMost), 'not sound');
    assert.equal(verdictOf({ middle: 0.7, interval: [0.6, 0.8] }, atMost), 'MISSED');
    assert.equal(verdictOf({ middle: 3, interval: [2, 4] }, atLeast), 'reached');
    assert.equal(verdictOf({ middle: 1, interval: [0.5, 1.9] }, atLeast), 'MISSED');
    assert.equal(verdictOf({ middle: 9 }, atLeast), 'not sound');
  });

  it('asks less of a pull with other drivers than overlay2', () => {
    const targets = (driver?: string): unknown[] =>
      pullBigImage.metrics.map((metric) => withDriver(metric, driver).target);
    assert.deepEqual(targets(), [0.3, 1]);
    assert.deepEqual(targets('overlay2'), [0.3, 1]);
    assert.deepEqual(targets('btrfs'), [0.6, 1]);
  });

  it('has each engine first in half of the rounds', () => {
    const orders = randomOrders(['a', 'b']);
    const first = upTo(100).map(() => orders.next().value[0]);
    assert.equal(first.filter((name) => name === 'a').length, 50);
  });
});
