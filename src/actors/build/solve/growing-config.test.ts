import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { parseTrigger } from '../../../build/dockerfile/parse.js';
import type { ImageRuntimeConfig } from '../../../ports/images.js';
import { whole } from '../../../text/turns.js';
import { GrowingConfig, isGrowing } from './growing-config.js';
import { PlanBudget } from './plan-budget.js';

const BASE: ImageRuntimeConfig = { Labels: { a: '1' }, ExposedPorts: { '80/tcp': {} }, Volumes: null };
const NO_ENV = { imageEnv: new Map<string, string>() };

/** Has the configuration take an instruction, and returns its text in the history. */
function take(growing: GrowingConfig, line: string): string {
  const instruction = { ...parseTrigger(line), lines: { start: 1, end: 1 } };
  if (!isGrowing(instruction)) throw new Error(`${line} is of no such kind`);
  return whole(growing.take(instruction));
}

/** Returns the configuration after these instructions, and their texts in the history. */
function grown(base: ImageRuntimeConfig, lines: readonly string[], budget = new PlanBudget()) {
  const growing = new GrowingConfig(base, budget);
  const texts = lines.map((line) => take(growing, line));
  return { texts, config: whole(growing.into(base, NO_ENV)) };
}

describe('a configuration that grows', () => {
  it('adds labels, ports and volumes to what the base has, whatever their names are', () => {
    const lines = ['LABEL __proto__=own', 'EXPOSE 8080-8081/UDP 80', 'VOLUME /v /w'];
    const { config, texts } = grown(BASE, lines);
    assert.deepEqual(Object.entries(config.Labels ?? {}), [
      ['a', '1'],
      ['__proto__', 'own'],
    ]);
    assert.deepEqual(Object.keys(config.ExposedPorts ?? {}), ['80/tcp', '8080/udp', '8081/udp']);
    assert.deepEqual(Object.keys(config.Volumes ?? {}), ['/v', '/w']);
    assert.deepEqual(texts, ['LABEL __proto__=own', 'EXPOSE [80/tcp 8080/udp 8081/udp]', 'VOLUME [/v /w]']);
    assert.deepEqual(BASE.Labels, { a: '1' });
  });

  it('adds triggers, which leave nothing in the history', () => {
    const { config, texts } = grown({ OnBuild: ['RUN a'] }, ['ONBUILD RUN b', 'onbuild COPY c /']);
    assert.deepEqual(config.OnBuild, ['RUN a', 'RUN b', 'COPY c /']);
    assert.deepEqual(texts, ['', '']);
    assert.equal(grown({ OnBuild: ['RUN a'] }, ['LABEL a=b']).config.OnBuild?.length, 1);
  });

  it('shares with its base what is not added to, and limits what stages copy', () => {
    const ports = Object.fromEntries(Array.from({ length: 65_536 }, (_, port) => [`${port}/tcp`, {}]));
    const base: ImageRuntimeConfig = { ExposedPorts: ports };
    const budget = new PlanBudget();
    for (let stage = 0; stage < 200; stage++)
      assert.equal(grown(base, ['LABEL a=b', 'ENV a=b'], budget).config.ExposedPorts, ports);
    assert.throws(() => {
      for (let stage = 0; stage < 200; stage++) take(new GrowingConfig(base, budget), 'EXPOSE 1/udp');
    }, /the stages have too many labels, ports and volumes/);
  });
});
