/** Tests of images with the unmodified docker CLI, for a daemon with any store: it has the image of the registry. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SeededRegistry } from './busybox-image.js';
import { cliCalls, TERMINAL } from './cli.js';
import type { Engine } from './engine.js';
import { idIn, type Store } from './tested-store.js';

export interface ImageScene {
  readonly engine: Engine;
  readonly registry: SeededRegistry;
  /** The name of the image that was pulled. */
  readonly image: string;
  readonly store: Store;
}

/** Declares the tests of pulls, and then those of what was pulled: for a store that keeps images its own way. */
export function pullAndImages(scene: () => ImageScene): void {
  pullsOfLayers(scene);
  pulls(scene);
  images(scene);
  imagesOfLayers(scene);
}

/**
 * Declares the tests that see a storage driver. All drivers have their images, names and answers of registries from
 * the same code, which `pullAndImages` tests with the default one.
 */
export function layersByCli(scene: () => ImageScene): void {
  pullsOfLayers(scene);
  imagesOfLayers(scene);
}

function toolsOf(scene: () => ImageScene) {
  return {
    ...cliCalls(() => scene().engine),
    image: (): string => scene().image,
    /** It tells of pulls in other words then, and of no layers when an image is deleted. */
    isContainerdOfDockerd: (): boolean => scene().engine.name === 'dockerd' && scene().store === 'snapshotter',
    id: (): string => idIn(scene().store, scene().registry.image),
  };
}

function pullsOfLayers(scene: () => ImageScene): void {
  const { ok, image } = toolsOf(scene);

  test('a first pull shows each layer and ends with digest and status', async () => {
    await ok('rmi', image());
    const lines = (await ok('pull', image())).split('\n');
    assert.equal(lines[0], '1.0: Pulling from test/busybox');
    for (const { digest } of scene().registry.image.layers) {
      const id = digest.slice('sha256:'.length, 'sha256:'.length + 12);
      for (const phase of ['Pulling fs layer', 'Download complete', 'Pull complete'])
        assert.ok(lines.includes(`${id}: ${phase}`), `${id}: ${phase} in ${lines.join('\n')}`);
    }
    assert.deepEqual(lines.slice(-3), [
      `Digest: ${scene().registry.image.digest}`,
      `Status: Downloaded newer image for ${image()}`,
      image(),
    ]);
  });
}

function pulls(scene: () => ImageScene): void {
  const { cli, ok, image, id, isContainerdOfDockerd } = toolsOf(scene);

  test('a second pull says that the image is up to date', async () => {
    const lines = (await ok('pull', image())).split('\n');
    assert.deepEqual(lines, [
      '1.0: Pulling from test/busybox',
      `Digest: ${scene().registry.image.digest}`,
      `Status: Image is up to date for ${image()}`,
      image(),
    ]);
  });

  test('pull by digest', async () => {
    const reference = `${scene().registry.host}/test/busybox@${scene().registry.image.digest}`;
    assert.match(await ok('pull', reference), new RegExp(`Status: Image is up to date for ${reference}`));
  });

  test('pull on a terminal draws progress', async () => {
    await ok('rmi', '-f', id());
    const { status, stdout } = await cli(['pull', image()], { terminal: TERMINAL });
    assert.equal(status, 0, stdout);
    assert.match(stdout, /Pull complete/);
    if (!isContainerdOfDockerd()) assert.match(stdout, /\[=+>/);
  });

  test('unknown tags and repositories are refused', async () => {
    const name = `${scene().registry.host}/test/busybox:nope`;
    const tag = await cli(['pull', name]);
    assert.equal(tag.status, 1);
    assert.ok(
      tag.stderr.includes(
        isContainerdOfDockerd() ? `${name}: not found` : `manifest for ${name} not found: manifest unknown`,
      ),
      tag.stderr,
    );
    const repository = await cli(['pull', `${scene().registry.host}/no/such:1`]);
    assert.equal(repository.status, 1);
    assert.match(repository.stderr, /not found|does not exist/);
  });
}

function images(scene: () => ImageScene): void {
  const { cli, ok, field, image, id } = toolsOf(scene);

  test('images lists name, tag, ID and digest', async () => {
    const row = await ok(
      'images',
      '--digests',
      '--no-trunc',
      '--format',
      '{{.Repository}} {{.Tag}} {{.Digest}} {{.ID}}',
    );
    assert.equal(row, `${scene().registry.host}/test/busybox 1.0 ${scene().registry.image.digest} ${id()}`);
    assert.equal(await ok('images', '-q', '--no-trunc', '--filter', 'label=flavour=plain'), id());
    assert.equal(await ok('images', '-q', '--filter', 'label=flavour=other'), '');
    assert.match(await ok('images'), /^REPOSITORY +TAG +IMAGE ID +CREATED +SIZE\n/);
  });

  test('history shows one line a layer, newest first', async () => {
    const lines = (await ok('history', '--no-trunc', '--format', '{{.ID}}|{{.CreatedBy}}', image())).split('\n');
    assert.deepEqual(lines, [`${id()}|layer 1`, '<missing>|layer 0']);
  });

  test('tag and rmi', async () => {
    await ok('tag', image(), 'local/copy:two');
    assert.equal(await field('local/copy:two', '{{.Id}}'), id());
    assert.equal(await ok('rmi', 'local/copy:two'), 'Untagged: local/copy:two');
    const again = await cli(['rmi', 'local/copy:two']);
    assert.equal(again.status, 1);
    assert.match(again.stderr, /No such image: local\/copy:two/);
  });
}

function imagesOfLayers(scene: () => ImageScene): void {
  const { ok, field, image, id, isContainerdOfDockerd } = toolsOf(scene);

  test('inspect shows the configuration and the layers', async () => {
    assert.equal(
      await field(image(), '{{.Id}} {{.Os}}/{{.Architecture}} {{json .Config.Cmd}}'),
      `${id()} linux/amd64 ["sh"]`,
    );
    assert.deepEqual(
      JSON.parse(await field(image(), '{{json .RootFS.Layers}}')),
      scene().registry.image.layers.map((layer) => layer.diffId),
    );
    assert.deepEqual(JSON.parse(await field(image(), '{{json .RepoDigests}}')), [
      `${scene().registry.host}/test/busybox@${scene().registry.image.digest}`,
    ]);
  });

  test('rmi of the last name deletes image and layers; it can be pulled again', async () => {
    const lines = (await ok('rmi', image())).split('\n');
    const { host, image: pulled } = scene().registry;
    // In containerd the digest is the image itself and no name of it.
    const digests = scene().store === 'snapshotter' ? [] : [`Untagged: ${host}/test/busybox@${pulled.digest}`];
    const first = [`Untagged: ${image()}`, ...digests, `Deleted: ${id()}`];
    assert.deepEqual(lines.slice(0, first.length), first);
    const layers = lines.slice(first.length);
    assert.ok(layers.every((line) => line.startsWith('Deleted: sha256:')));
    assert.equal(layers.length, isContainerdOfDockerd() ? 0 : 2);
    assert.equal(await ok('images', '-q'), '');
    await ok('pull', '-q', image());
  });
}
