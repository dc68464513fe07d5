/** The check of the data root, offline and online: every byte has an owner, orphans go, and nothing else does. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { SeededRegistry } from '../support/busybox-image.js';
import { BtrfsDisk } from '../support/btrfs-disk.js';
import { checkKept, checkKills, makeKept, offlineFsck, onlineFsck, SNAPSHOTTER } from '../support/churn-check.js';
import { Cleanup } from '../support/cleanup.js';
import { assertWithin, diskBytes } from '../support/disk.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, generatedLayer } from '../support/image-builder.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
/** Rounds of changes with a kill. The long run: ENGINE_CHURN_ROUNDS=500. */
const ROUNDS = Number(process.env['ENGINE_CHURN_ROUNDS'] ?? 4);
/** Another storage driver, or supervisor-snapshotter, makes these rounds alone: ENGINE_CHURN_STORE=btrfs. */
const STORE = process.env['ENGINE_CHURN_STORE'] ?? 'overlay2';
const skip = STORE === 'overlay2' ? false : `is for overlay2 and not for ${STORE}`;

const cleanup = new Cleanup();
let disk: BtrfsDisk | undefined;
let engine: Engine;
let registry: SeededRegistry;
let dataRoot: string;

before(async () => {
  disk = STORE === 'btrfs' ? new BtrfsDisk(2048, ['max_inline=0']) : undefined;
  cleanup.add(async () => disk?.remove());
  const at = disk ? ['--data-root', join(disk.path, 'data')] : [];
  const store = STORE === SNAPSHOTTER ? ['--feature', STORE] : ['--storage-driver', STORE];
  ({ engine, registry } = await startEngineWithRegistry(cleanup, engined({ args: [...at, ...store] })));
  dataRoot = disk ? join(disk.path, 'data') : join(engine.dir, 'data');
  await makeKept(engine, registry.reference);
});
after(() => cleanup.run());

const fsck = (...args: string[]) => offlineFsck({ engine, dataRoot }, ...args);
const online = (dryRun: boolean) => onlineFsck(engine, dryRun);

const HEX = 'ab'.repeat(32);
const ORPHANS: readonly (readonly [path: string, reason: RegExp])[] = [
  ['overlay2/layers/orphan/diff/file', /a layer without a record/],
  ['overlay2/staging/orphan/diff/file', /an unfinished layer/],
  [`overlay2/index/${HEX}.json`, /a record of a layer/],
  ['overlay2/writable/orphan/diff/file', /a writable layer of no container/],
  [`image/content/${HEX}`, /a configuration of no image/],
  [`image/metadata/${HEX}.json`, /a record of no image/],
];
const OFFLINE_ORPHANS: typeof ORPHANS = [
  ['overlay2/trash/orphan/file', /a deletion that was interrupted/],
  [`containers/${HEX}/hostname`, /a directory of no container/],
  ['tmp/import-1', /a temporary file/],
  [`image/content/${HEX}.tmp-0123456789ab`, /a write that was interrupted/],
  ['volumes/.removed-x/_data/file', /a deletion that was interrupted/],
];
/** A kill has cut these short, and the next start ends them. */
const CUT_SHORT = [
  `containers/.removed-volumes-${HEX}/container.json`,
  `containers/.removed-${HEX}/draft.json`,
  `containers/${HEX}/draft.json`,
  'volumes/.removed-x/volume.json',
];
const RECEIVED: typeof ORPHANS = [['builder/contexts/left/file', /a temporary file/]];
const KEPT: typeof ORPHANS = [
  ['volumes/orphan/_data/dear', /no volume/],
  ['notes-of-the-operator.txt', /not made by this daemon/],
];

function plant(orphans: typeof ORPHANS): void {
  for (const [path] of orphans) {
    mkdirSync(join(dataRoot, path, '..'), { recursive: true });
    writeFileSync(join(dataRoot, path), 'x'.repeat(50_000));
  }
}

/** The two first components below the shelf are the place. */
const placeOf = (path: string): string =>
  path
    .split('/')
    .slice(
      0,
      path.startsWith('containers') || path.startsWith('volumes') || path.startsWith('tmp') || !path.includes('/')
        ? 2
        : 3,
    )
    .join('/');

describe('with the daemon', { skip }, () => {
  test('nothing is found where nothing is wrong, and every byte is told', async () => {
    const report = await online(true);
    assert.deepEqual(report.findings, []);
    assertWithin(report.bytes, diskBytes(dataRoot), 0.01, 'the whole');
  });

  test('planted orphans are found, and repaired when that is asked for', async () => {
    plant(ORPHANS);
    const dry = await online(true);
    assert.deepEqual(dry.findings.map(({ path }) => path).sort(), ORPHANS.map(([path]) => placeOf(path)).sort());
    for (const [path, reason] of ORPHANS)
      assert.match(dry.findings.find((one) => one.path === placeOf(path))?.reason ?? '', reason);
    assert.ok(dry.findings.every(({ outcome }) => outcome === 'kept'));
    assert.ok(ORPHANS.every(([path]) => existsSync(join(dataRoot, path))));
    const repair = await online(false);
    assert.ok(
      repair.findings.every(({ outcome }) => outcome === 'repaired'),
      JSON.stringify(repair.findings),
    );
    assert.deepEqual((await online(true)).findings, []);
    await engineOk(engine, ['rm', '-f', 'none']).catch(() => undefined);
  });

  test('what is under way is nobody\u2019s orphan', async () => {
    const image = buildImage({
      layers: [generatedLayer({ root: 'a', bytes: 8 << 20, files: 500, seed: 3, compression: 'none' })],
      config: {},
    });
    const archive = archiveOf(oldArchive(image, ['busy:1']));
    for (let round = 0; round < 2; round++) {
      const [{ error }, { findings }] = await Promise.all([load(engine, archive), online(false)]);
      assert.equal(error, undefined);
      assert.deepEqual(findings, []);
      await engineOk(engine, ['rmi', 'busy:1']);
    }
  });

  test('the command leaves a data root alone that a daemon uses', () => {
    const { status, output } = fsck('--repair');
    assert.equal(status, 8);
    assert.match(output, /data-root .* is in use by process \d+/);
  });
});

describe('without a daemon', { skip }, () => {
  before(() => engine.stop());
  after(() => engine.start());

  test('exit codes are those of fsck(8); a second repair finds nothing', () => {
    assert.equal(fsck().status, 0);
    plant([...ORPHANS, ...OFFLINE_ORPHANS]);
    const dry = fsck();
    assert.equal(dry.status, 4, dry.output);
    for (const [path, reason] of [...ORPHANS, ...OFFLINE_ORPHANS]) {
      const line = dry.output.split('\n').find((one) => one.startsWith(`kept: ${placeOf(path)}: `));
      assert.match(line ?? dry.output, reason);
    }
    assert.equal(fsck('--repair').status, 1);
    assert.deepEqual([fsck('--repair').status, fsck().status], [0, 0]);
  });

  test('volumes without a record and strange files are told of and kept', () => {
    plant(KEPT);
    const { status, output } = fsck('--repair');
    assert.equal(status, 4, output);
    for (const [path] of KEPT) assert.ok(existsSync(join(dataRoot, path)));
    spawnSync('rm', ['-r', join(dataRoot, 'volumes/orphan'), join(dataRoot, 'notes-of-the-operator.txt')]);
  });

  test('removals and creations that the next start has to end are left to it', () => {
    for (const path of CUT_SHORT) {
      mkdirSync(join(dataRoot, path, '..'), { recursive: true });
      writeFileSync(join(dataRoot, path), '{}');
    }
    const { status, output } = fsck('--repair');
    assert.equal(status, 0, output);
    for (const path of CUT_SHORT) assert.ok(existsSync(join(dataRoot, path)), path);
    spawnSync('rm', ['-r', ...CUT_SHORT.map((path) => join(dataRoot, path, '..'))]);
  });

  test('a directory that is not there is not made', () => {
    const { status } = spawnSync(MAIN, [
      'fsck',
      '--config-file',
      join(engine.dir, 'daemon.json'),
      '--data-root',
      join(engine.dir, 'typo'),
    ]);
    assert.equal(status, 8);
    assert.equal(existsSync(join(engine.dir, 'typo')), false);
  });

  test('what was kept works, and a start removes files of clients that a kill has left', async () => {
    plant(RECEIVED);
    await engine.start();
    assert.ok(RECEIVED.every(([path]) => !existsSync(join(dataRoot, path))));
    await checkKept({ engine, registry });
    await engine.stop();
  });
});

describe('kills in the middle', () => {
  test(
    'of loads, pulls, pushes, saves, commits, imports, removals and prunes leave no bytes behind',
    { timeout: 60_000 + ROUNDS * 20_000 },
    async (context) => {
      const usedBytes = disk && (() => disk?.dataBytes() ?? 0);
      context.diagnostic(await checkKills({ engine, registry, dataRoot, store: STORE, rounds: ROUNDS, usedBytes }));
    },
  );
});
