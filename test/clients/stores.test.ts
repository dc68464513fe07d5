/**
 * The docker CLI and images of a daemon with each storage driver but the default one, and with the snapshots of
 * containerd. `ENGINE_TEST_STORE=btrfs npm test -- test/clients` runs all tests of clients with one of them. The same
 * file passes against the original (ENGINE_UNDER_TEST=dockerd).
 */
import { after, before, describe } from 'node:test';
import { BtrfsDisk, noBtrfs } from '../support/btrfs-disk.js';
import { Cleanup } from '../support/cleanup.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { kindOn } from '../support/engined.js';
import { type ImageScene, layersByCli, pullAndImages } from '../support/images-by-cli.js';
import { OTHER_STORES } from '../support/tested-store.js';

for (const store of OTHER_STORES)
  describe(store, { skip: store === 'btrfs' && noBtrfs() }, () => {
    const cleanup = new Cleanup();
    let scene: ImageScene;

    before(async () => {
      if (store === 'btrfs') useBtrfs(cleanup);
      scene = { ...(await startEngineWithRegistry(cleanup, kindOn(store))), store };
    });
    after(() => cleanup.run());

    // The snapshots of containerd come with its own store of images; a driver only keeps layers.
    const declare = store === 'snapshotter' ? pullAndImages : layersByCli;
    declare(() => scene);
  });

/** Has the daemons that are started next keep their files on a btrfs. */
function useBtrfs(cleanup: Cleanup): void {
  const { TMPDIR } = process.env;
  const disk = new BtrfsDisk();
  cleanup.add(async () => disk.remove());
  process.env['TMPDIR'] = disk.path;
  cleanup.add(async () => {
    if (TMPDIR === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = TMPDIR;
  });
}
