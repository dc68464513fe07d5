import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pruneImages, type PruneDeps } from './prune.js';

test('an image that gets its name while its size is measured stays', async () => {
  let names: readonly string[] = [];
  const store = {
    list: () => [{ id: 'sha256:a', repoTags: [], config: {} }],
    childrenOf: () => [],
    namesOf: () => names,
    layersOf: () => [],
  };
  const told: string[] = [];
  const deps = {
    store,
    layerBytes: async () => {
      names = ['committed:1'];
      return new Map();
    },
    emit: (action: string) => void told.push(action),
  } as unknown as PruneDeps;
  const selection = { danglingOnly: true, untilMs: undefined, matchesLabels: () => true };
  const { removed } = await pruneImages(deps, selection, new AbortController().signal);
  assert.deepEqual([removed, told], [[], ['prune']]);
});
