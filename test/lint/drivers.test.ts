/** The lint rule that keeps storage drivers behind their contract. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

type ProblemsOf = (sources: readonly (readonly [string, string])[], folders: readonly string[]) => string[];

const SCRIPT = join(import.meta.dirname, '../../../scripts/lint-drivers.mjs');
const { problemsOf } = (await import(SCRIPT)) as { readonly problemsOf: ProblemsOf };
const problems = (path: string, text: string): number => problemsOf([[path, text]], ['overlay']).length;

test('imports from the folder of a driver, and paths of its store, are refused outside', () => {
  for (const [path, text] of [
    ['composition/drivers.ts', "import { overlay2 } from '../storage/drivers/overlay/overlay-driver.js';"],
    ['storage/volumes.ts', "import { overlay2 } from './drivers/overlay/overlay-driver.js';"],
    ['storage/layers/layout.ts', "  x: async () => (await import('../drivers/overlay/probe.js')).probe,"],
    ['inventory/fsck.ts', "const path = 'overlay2/layers';"],
    ['inventory/fsck.ts', "const path = 'btrfs/writable';"],
    ['inventory/fsck.ts', "const path = 'fuse-overlayfs/index';"],
    ['composition/containers.ts', "layers.graphData(id)['MergedDir']"],
  ] as const) {
    assert.equal(problems(path, text), 1, path);
    assert.equal(problems('storage/drivers/overlay/probe.ts', text), 0);
  }
  assert.equal(problems('composition/drivers.ts', "import { x } from '../storage/drivers/index.js';"), 0);
  assert.equal(problems('config/options.ts', "const name = 'overlay2';"), 0);
});
