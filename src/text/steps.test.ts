import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { inSteps, step, steps, type Step } from './steps.js';

class Driver {
  readonly #secret = 'found';

  async work(name: string): Promise<string> {
    if (name === '') throw new Error('no name');
    return `${this.#secret} ${name}`;
  }

  now(): string {
    return this.#secret;
  }
}

describe('steps', () => {
  const heard: Step[] = [];
  const hear = (message: unknown): number => heard.push(message as Step);
  afterEach(() => {
    steps.unsubscribe(hear);
    heard.length = 0;
  });

  it('leaves drivers as they are when nobody listens', async () => {
    const driver = new Driver();
    assert.equal(inSteps('room', driver), driver);
    assert.equal(await step('one', async () => 1), 1);
  });

  it('tells of promises that are kept or broken, and changes no result', async () => {
    steps.subscribe(hear);
    const driver = inSteps('room', new Driver());
    assert.equal(await driver.work('x'), 'found x');
    assert.equal(driver.now(), 'found');
    await assert.rejects(driver.work(''), /no name/);
    await assert.rejects(
      step('other', async () => Promise.reject(new Error('broken'))),
      /broken/,
    );
    assert.deepEqual(
      heard.map(({ name }) => name),
      ['room.work', 'room.work', 'other'],
    );
    assert.ok(heard.every(({ begunMs, endedMs }) => begunMs <= endedMs));
  });
});
