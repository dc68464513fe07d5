import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BuildObserver, BuildRequest } from '../../../ports/build.js';
import { Solve } from './solve.js';
import type { SolveDeps } from './tools.js';

test('who hears what is built can answer before anything is', async () => {
  const events: string[] = [];
  const observer: Partial<BuildObserver> = {
    vertex: () => undefined,
    planned: () => {
      events.push('planned');
      setImmediate(() => events.push('answered'));
    },
  };
  const request: Partial<BuildRequest> = {
    dockerfile: { name: 'Dockerfile', text: Buffer.from('FROM scratch\n') },
    observer: observer as BuildObserver,
    platforms: ['linux/amd64'],
    buildArgs: new Map(),
    labels: new Map(),
    context: { readFile: () => Promise.resolve(undefined), tree: () => assert.fail('no files are read') },
    namedContexts: new Map(),
    cacheFrom: [],
    outputs: [],
    target: '',
  };
  const deps = { host: { architecture: 'amd64' } } as unknown as SolveDeps;
  await new Solve(deps, request as BuildRequest, new AbortController().signal).plan();
  events.push('begun');
  assert.deepEqual(events, ['planned', 'answered', 'begun']);
});
