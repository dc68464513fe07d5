import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PlanBudget } from './plan-budget.js';

test('all instructions of a build together may fetch a thousand sources', () => {
  const budget = new PlanBudget();
  budget.fetch(600);
  budget.fetch(400);
  assert.throws(() => budget.fetch(1), { kind: 'invalid', message: /more than 1000 sources that are to be fetched/ });
});
