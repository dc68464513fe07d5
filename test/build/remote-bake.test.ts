/** `docker buildx bake` with a definition at an address: the client looks into files that the engine fetches. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call } from '../support/http.js';
import { SourceServer } from '../support/source-server.js';

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'remote-bake-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
const BAKE = JSON.stringify({ target: { default: { tags: ['baked:1'], args: { WHO: 'bake' } } } });
const DOCKERFILE = 'FROM scratch\nARG WHO\nCOPY <<EOF /who\n$WHO\nEOF\nCOPY . /all\n';
let engine: Engine;
let server: SourceServer;
let buildx: Buildx;

before(async () => {
  ({ engine } = await startEngineWithImage(cleanup));
  server = await SourceServer.start();
  cleanup.add(() => server.stop());
  buildx = new Buildx(join(directory, 'work'), engine.host);
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

const isThere = async (name: string): Promise<boolean> =>
  (await call(engine.socketPath, 'GET', `/images/${name}/json`)).status === 200;

describe('docker buildx bake URL', { skip }, () => {
  test('takes the definition and the context from a repository', async () => {
    server.commit('bake', { 'docker-bake.json': BAKE, Dockerfile: DOCKERFILE, 'sub/file': 'x' });
    await buildx.ok(['buildx', 'bake', `${server.url}/git/bake.git`]);
    assert.ok(await isThere('baked:1'));
    const printed = await buildx.ok(['buildx', 'bake', '--print', `${server.url}/git/bake.git`]);
    assert.match(printed.stdout, /"WHO": "bake"/);
    // A file of another name, in a repository of which one branch is meant.
    server.commit('bake', { 'other.json': BAKE.replace('baked:1', 'baked:2') }, 'branch');
    await buildx.ok(['buildx', 'bake', '-f', 'other.json', `${server.url}/git/bake.git#branch`]);
    assert.ok(await isThere('baked:2'));
    const missing = await buildx.run(['buildx', 'bake', '-f', 'nope.json', `${server.url}/git/bake.git`]);
    assert.notEqual(missing.status, 0);
    assert.match(missing.stderr, /nope\.json/);
  });

  test('takes the definition from a file at an address', async () => {
    server.file('/bake.json', BAKE.replace('baked:1', 'baked:3'));
    const printed = await buildx.ok(['buildx', 'bake', '--print', `${server.url}/bake.json`]);
    assert.match(printed.stdout, /baked:3/);
    const gone = await buildx.run(['buildx', 'bake', '--print', `${server.url}/gone.json`]);
    assert.notEqual(gone.status, 0);
    assert.match(gone.stderr, /gone\.json/);
  });

  test('reads nothing outside the repository', async () => {
    const secret = join(directory, 'secret.json');
    writeFileSync(secret, BAKE.replace('baked:1', 'stolen:1'));
    const up = '../../../../../../../../..'.concat(secret);
    server.commit('evil', { 'link.json@': secret, 'up.json@': up, 'loop.json@': 'loop.json', 'dir/f': 'x' });
    for (const name of ['link.json', 'up.json', 'loop.json', 'dir']) {
      const refused = await buildx.run(['buildx', 'bake', '--print', '-f', name, `${server.url}/git/evil.git`]);
      assert.notEqual(refused.status, 0, name);
      assert.doesNotMatch(refused.stdout, /stolen/);
    }
  });
});
