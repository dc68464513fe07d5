/** A registry that does what tests want, and the actors of pulls, new for each test: nothing half made may be left. */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'node:test';
import { isEngineError, type ErrorKind } from '../../src/errors/engine-error.js';
import { type FaultyServer, publishImage, startFaultyServer } from './faulty-registry.js';
import { type BuiltImage, type BuiltLayer, generatedLayer } from './image-builder.js';
import { type PullHarness, startPullHarness } from './pull-harness.js';

export class PullScene {
  server!: FaultyServer;
  harness!: PullHarness;

  constructor() {
    beforeEach(async () => {
      this.server = await startFaultyServer();
      this.harness = await startPullHarness();
    });
    afterEach(() => this.#end());
  }

  publish(image: BuiltImage, name = 'app', tag = 'latest', on = this.server): void {
    publishImage(on, image, name, tag);
  }

  async settled(): Promise<void> {
    for (let tries = 0; this.harness.pulls.collection.children.size + this.harness.transfers.size > 0; tries++) {
      assert.ok(tries < 100, 'all transfers end');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Another harness in place of the one that runs. */
  async restart(overrides: Parameters<typeof startPullHarness>[0]): Promise<PullHarness> {
    await this.harness.stop();
    return (this.harness = await startPullHarness(overrides));
  }

  async #end(): Promise<void> {
    await this.settled();
    assert.deepEqual(this.harness.errors, []);
    assert.equal(this.harness.layers.staged, 0, 'nothing stays staged');
    assert.deepEqual(
      (await readdir(join(this.harness.dir, 'layers'))).filter((name) => name.startsWith('staging')),
      [],
    );
    await this.harness.stop();
    await this.server.stop();
  }
}

export const layers = (): BuiltLayer[] =>
  [1, 2, 3].map((seed) => generatedLayer({ root: `d${seed}`, bytes: 400_000, files: 10, seed }));

export const refused = (kind: ErrorKind, pattern: RegExp) => (error: unknown) => {
  assert.ok(isEngineError(error), String(error));
  assert.equal(error.kind, kind, error.message);
  assert.match(error.message, pattern);
  return true;
};
