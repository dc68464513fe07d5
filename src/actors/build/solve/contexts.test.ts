import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BuildContext } from '../../../ports/build.js';
import { ClientContext } from './contexts.js';
import type { StepWork } from './step.js';

/** Returns the paths that a client is asked for when steps read these. */
async function asked(paths: readonly string[]): Promise<readonly string[]> {
  let asked: readonly string[] = ['nothing'];
  const context = {
    readFile: () => Promise.resolve(undefined),
    tree: ({ follow }: { readonly follow: readonly string[] }) => {
      asked = follow;
      return Promise.resolve({ directory: '/', release: () => Promise.resolve() });
    },
  } as unknown as BuildContext;
  const step = new ClientContext(context, { step: 'load', source: 'context' }, () => Promise.resolve([])).step(paths);
  const tools = { atEnd: () => undefined, request: { observer: {} } } as unknown as StepWork['tools'];
  await step.operation.perform({ tools, step, signal: new AbortController().signal } as StepWork);
  return asked;
}

test('a client is asked for the paths that steps read; for all when it is the whole, or very many', async () => {
  assert.deepEqual(await asked(['b', '/a/', 'b']), ['a', 'b']);
  assert.deepEqual(await asked(['b', '/']), []);
  const many = Array.from({ length: 1000 }, (_, at) => `f${at}`);
  assert.equal((await asked(many)).length, 1000);
  assert.deepEqual(await asked([...many, 'one more']), []);
});
