/** Containers and images that ask for files without end, in number or depth, harm neither the daemon nor the disk. */
import assert from 'node:assert/strict';
import { mkdirSync, statfsSync, truncateSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { makeDeep } from '../support/deep-directories.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const skip = process.env['ENGINE_UNDER_TEST'] === 'dockerd' && 'it tells nothing of what is still to be deleted';
/** The kernel takes paths of 4096 bytes. */
const LEVELS = 4000;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => engineOk(engine, args);

/** Starts a container with a volume, and returns the place of its root. */
async function start(name: string): Promise<string> {
  await ok('run', '-d', '--name', name, '-v', `${name}:/volume`, image, 'sleep', '1000');
  return `/proc/${await ok('inspect', '-f', '{{.State.Pid}}', name)}/root`;
}

test(
  'directories that no path can name are left out or refused, and deleted with their container',
  { skip },
  async () => {
    const root = await start('deep');
    mkdirSync(`${root}/deep`);
    for (const place of ['deep', 'volume']) makeDeep(`${root}/${place}`, LEVELS);
    const changes = await call(engine.socketPath, 'GET', '/containers/deep/changes');
    assert.match(changes.text, /^\{"message":"file name too long: deep\/d\/d\/.{1,200}…"\}\n$/);
    assert.equal(changes.status, 500);
    const sized = await call(engine.socketPath, 'GET', '/containers/deep/json?size=1');
    assert.equal(sized.status, 200, sized.text);
    await ok('rm', '-f', 'deep');
    await ok('volume', 'rm', 'deep');
    await waitFor('all of it to be deleted', async () => {
      const { text } = await call(engine.socketPath, 'GET', '/system/df?type=container');
      const { DataRoot } = JSON.parse(text) as { DataRoot: { Kinds: readonly { Kind: string }[] } };
      return !DataRoot.Kinds.some(({ Kind }) => Kind === 'trash');
    });
  },
);

test('the changes of a container with very many files come as a whole, in the order of their paths', async () => {
  const root = await start('many');
  mkdirSync(`${root}/many`);
  const names = Array.from({ length: 5000 }, (_, at) => `/many/${'é'.repeat(50)}-${String(at).padStart(5, '0')}`);
  for (const name of names) writeFileSync(root + name, '');
  const { text } = await call(engine.socketPath, 'GET', '/containers/many/changes');
  const changes = JSON.parse(text) as readonly { readonly Path: string; readonly Kind: number }[];
  assert.deepEqual(
    changes.filter(({ Path }) => Path.startsWith('/many/')),
    names.map((Path) => ({ Path, Kind: 1 })),
  );
  assert.ok(text.endsWith(']\n'));
  await ok('rm', '-f', '-v', 'many');
});

test('an image whose containers would get volumes without end has none', { skip }, async () => {
  const Volumes = Object.fromEntries(Array.from({ length: 1001 }, (_, at) => [`/v/${at}`, {}]));
  await ok('create', '--name', 'many', image, 'true');
  const path = '/commit?container=many&repo=volumes&tag=many';
  const commit = await call(engine.socketPath, 'POST', path, { json: { Volumes } });
  assert.equal(commit.status, 201, commit.text);
  await ok('rm', 'many');
  const before = await ok('volume', 'ls', '-q');
  const refused = await call(engine.socketPath, 'POST', '/containers/create', { json: { Image: 'volumes:many' } });
  assert.equal(refused.text, '{"message":"a container or its image has more than 1000 volumes"}\n');
  assert.equal(refused.status, 400);
  assert.equal(await ok('volume', 'ls', '-q'), before);
});

test('a file with more holes than the disk has room is in no image', { skip }, async () => {
  const root = await start('holes');
  const { bavail, bsize } = statfsSync(engine.dir);
  writeFileSync(`${root}/sparse`, '');
  // Other tests may delete files meanwhile.
  truncateSync(`${root}/sparse`, 2 * bavail * bsize);
  const refused = await call(engine.socketPath, 'POST', '/commit?container=holes&repo=holes');
  assert.match(refused.text, /no space left on device/);
  assert.equal(refused.status, 500);
  truncateSync(`${root}/sparse`, 1 << 20);
  await ok('commit', 'holes', 'holes');
  await ok('rm', '-f', '-v', 'holes');
  await ok('rmi', 'holes');
});
