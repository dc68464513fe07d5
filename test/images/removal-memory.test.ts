/** The files of a removed image are deleted without a worker thread, whose memory others may need. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { startEngine } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { buildLayer } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
after(() => cleanup.run());

test('an image of many files goes without a thread', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'removal-memory-'));
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  const steps = join(directory, 'steps.jsonl');
  const engine = await startEngine(cleanup, engined({ env: { ENGINED_TIMELINE: steps } }));
  const files = Array.from({ length: 200 }, (_, index) => ({ path: `f${index}`, content: Buffer.from(`${index}`) }));
  const body = buildLayer(files, 'none').blob;
  const { status } = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=many', { body });
  assert.equal(status, 200);
  await callJson(engine.socketPath, 'DELETE', '/images/many');
  const data = join(engine.dir, 'data');
  const trashes = readdirSync(data).map((driver) => join(data, driver, 'trash'));
  const trash = trashes.find((directory) => existsSync(directory)) ?? assert.fail('there is no trash');
  await waitFor('the trash to be empty', () => readdirSync(trash).length === 0);
  await engine.stop();
  const worked: readonly string[] = readFileSync(steps, 'utf8').match(/"worker\.[^"]+"/g) ?? [];
  assert.ok(worked.length > 0, 'the steps of threads are written down');
  assert.ok(!worked.includes('"worker.remove-trees"'), worked.join(', '));
});
