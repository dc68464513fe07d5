/** The engine of a test file: it starts before the tests and ends after them, and nothing of it may be left. */
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import { Cleanup } from './cleanup.js';
import { engineOk } from './engine-commands.js';
import { startEngineWithImage, type EngineWithImage } from './engine-with-image.js';

/** To be made once, at the top of a test file. */
export class FileEngine {
  /** Further things to be done after the tests. */
  protected readonly cleanup = new Cleanup();
  #started: EngineWithImage | undefined;

  constructor() {
    before(async () => {
      this.#started = await startEngineWithImage(this.cleanup);
    });
    after(() => this.cleanup.run());
  }

  get engine(): EngineWithImage['engine'] {
    return this.#running.engine;
  }

  get image(): string {
    return this.#running.image;
  }

  get #running(): EngineWithImage {
    assert.ok(this.#started, 'the engine runs while tests do');
    return this.#started;
  }

  ok(...args: string[]): Promise<string> {
    return engineOk(this.engine, args);
  }
}
