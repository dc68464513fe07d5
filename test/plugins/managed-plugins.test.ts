/** Managed plugins: made, enabled, used as drivers, and there again after the daemon was killed. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { cliCalls } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry, type EngineWithRegistry } from '../support/engine-with-image.js';
import { makePluginDir, pluginConfig, PluginRuntime } from '../support/managed-plugin.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let runtime: PluginRuntime;

before(async () => {
  const started: EngineWithRegistry = await startEngineWithRegistry(cleanup);
  ({ engine, image } = started);
  runtime = new PluginRuntime();
  cleanup.add(async () => runtime.remove());
});
after(() => cleanup.run());

const { cli, ok } = cliCalls(() => engine);

/** Creates a plugin that is ready to be enabled. */
async function create(name: string, types: readonly string[], mode?: string): Promise<void> {
  const dir = makePluginDir(pluginConfig(types, mode));
  try {
    await ok('plugin', 'create', name, dir);
  } finally {
    rmSync(dir, { recursive: true });
  }
  await ok('plugin', 'set', name, `runtime.source=${runtime.dir}`);
}

describe('a managed volume plugin', () => {
  test('is made of a directory, shown and listed', async () => {
    await create('team/volumes', ['docker.volumedriver/1.0']);
    const [shown] = JSON.parse(await ok('plugin', 'inspect', 'team/volumes')) as [Record<string, unknown>];
    assert.equal(shown['Name'], 'team/volumes:latest');
    assert.equal(shown['Enabled'], false);
    assert.match(await ok('plugin', 'ls'), /team\/volumes:latest\s+A plugin of the tests\s+false/);
    assert.equal((await cli(['volume', 'create', '-d', 'team/volumes', 'early'])).status, 1);
  });

  test('is enabled, mounts volumes for containers, and is in use meanwhile', async () => {
    await ok('plugin', 'set', 'team/volumes', 'COLOUR=blue');
    await ok('plugin', 'enable', 'team/volumes');
    await ok('volume', 'create', '-d', 'team/volumes', 'one');
    assert.equal(await ok('volume', 'inspect', '-f', '{{.Driver}}', 'one'), 'team/volumes:latest');
    assert.equal(await ok('run', '--rm', '-v', 'one:/data', image, 'cat', '/data/colour'), 'blue');
    assert.match((await cli(['plugin', 'disable', 'team/volumes'])).stderr, /plugin "team\/volumes:latest" is in use/);
    assert.match((await cli(['plugin', 'rm', 'team/volumes'])).stderr, /plugin "team\/volumes:latest" is in use/);
    await ok('volume', 'rm', 'one');
    await ok('plugin', 'disable', 'team/volumes');
    await ok('plugin', 'rm', 'team/volumes');
    assert.equal(await ok('plugin', 'ls', '-q'), '');
  });
});
