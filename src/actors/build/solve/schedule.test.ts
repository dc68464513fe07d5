import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whole } from '../../../text/turns.js';
import { Schedule } from './schedule.js';
import { newStep, type PlannedStep } from './step.js';
import type { StepResult } from './step-result.js';

function step(name: string, sources: readonly PlannedStep[] = [], identity = name): PlannedStep {
  const operation = { identity, perform: () => Promise.reject(new Error('nothing is done')) };
  return newStep({ name, operation, parent: undefined, sources, lines: undefined, isFresh: false });
}

const result = {} as StepResult;

test('of many steps that wait for nothing, as many begin as are wanted, and none is forgotten', () => {
  const first = Array.from({ length: 5 }, (_, at) => step(`first ${at}`));
  const schedule = whole(Schedule.parts([step('last', first)]));
  const names = (most: number): string[] => schedule.take(most).map(({ name }) => name);
  assert.deepEqual(names(2), ['first 0', 'first 1']);
  assert.deepEqual(names(0), []);
  assert.deepEqual(names(-1), []);
  for (const one of first.slice(0, 2)) schedule.complete(one.digest, result);
  assert.deepEqual(names(9), ['first 2', 'first 3', 'first 4']);
  for (const one of first.slice(2)) schedule.complete(one.digest, result);
  assert.deepEqual(names(9), ['last']);
});

test('a long chain of steps is gone through in parts, down and up', () => {
  let last = step('0');
  for (let at = 1; at < 100; at++) last = step(`${at}`, [last]);
  const parts = Schedule.parts([last]);
  let count = 0;
  while (parts.next().done !== true) count++;
  assert.ok(count >= 300, `${count} parts: each step is entered, left and scheduled`);
});

test('steps that do the same are one, with the name that the walk meets last, but for a further platform', () => {
  const base = (name: string): PlannedStep => step(name, [], 'base');
  const copy = step('copy', [base('own base'), step('run', [base('base of the run')])]);
  const other = step('other', [base('base of the other')]);
  const names = whole(Schedule.parts([copy, other])).steps.map(({ name }) => name);
  assert.deepEqual(names, ['base of the run', 'run', 'copy', 'other']);
});
