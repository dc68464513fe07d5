/** The check of the data root, offline and online: every byte has an owner, orphans go, and nothing else does. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { SeededRegistry } from '../support/busybox-image.js';
import { BtrfsDisk } from '../support/btrfs-disk.js';
import { Churn, PRUNE_IMAGES } from '../support/churn.js';
import { Cleanup } from '../support/cleanup.js';
import { assertWithin, diskBytes } from '../support/disk.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, generatedLayer } from '../support/image-builder.js';
import { randomNumbers } from '../support/random-numbers.js';
import { waitFor } from '../support/wait.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
/** Rounds of changes with a kill. The long run: ENGINE_CHURN_ROUNDS=500. */
const ROUNDS = Number(process.env['ENGINE_CHURN_ROUNDS'] ?? 4);
/** Another storage driver, or supervisor-snapshotter, makes these rounds alone: ENGINE_CHURN_STORE=btrfs. */
const STORE = process.env['ENGINE_CHURN_STORE'] ?? 'overlay2';
const SNAPSHOTTER = 'supervisor-snapshotter';
/** A build by its client takes longer than all else; a creation is over soon, so every other round is shorter. */
const LONGEST_MS = [STORE === SNAPSHOTTER ? 1_200 : 400, 60];
const skip = STORE === 'overlay2' ? false : `is for overlay2 and not for ${STORE}`;

interface Report {
  readonly bytes: number;
  readonly kinds: { kind: string; count: number; bytes: number }[];
  readonly findings: { path: string; kind: string; reason: string; outcome: string }[];
}
interface DiskUsage {
  readonly DataRoot: { readonly Size: number };
}

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
  await engineOk(engine, ['volume', 'create', 'kept']);
  await engineOk(engine, [
    'run',
    '--name',
    'kept',
    '--network',
    'none',
    '-v',
    'kept:/v',
    registry.reference,
    'sh',
    '-c',
    'echo some output; echo a >/v/file; head -c 20000000 /dev/urandom >/file',
  ]);
});
after(() => cleanup.run());

function fsck(...args: string[]): { readonly status: number | null; readonly output: string } {
  const { status, stdout, stderr } = spawnSync(
    MAIN,
    ['fsck', '--config-file', join(engine.dir, 'daemon.json'), '--data-root', dataRoot, ...args],
    { encoding: 'utf8' },
  );
  return { status, output: stdout + stderr };
}
const online = (dryRun: boolean): Promise<Report> =>
  callJson<Report>(engine.socketPath, 'POST', `/engine/fsck?dryRun=${dryRun ? 1 : 0}`);

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

/** The file system's own figure for the data root. On btrfs du(1) would leave out subvolumes. */
const usedBytes = (): number => disk?.dataBytes() ?? diskBytes(dataRoot);

/** Without what remembers that something happened, and grows for a while: the logs of events and builds, databases. */
const contentBytes = (): number => {
  const supervisor = join(dataRoot, 'supervisor');
  const databases = readdirSync(supervisor, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.db'),
  );
  const history = join(dataRoot, 'builder', 'history');
  const memories = [join(dataRoot, 'events'), ...(existsSync(history) ? [history] : [])];
  return [...memories, ...databases.map((name) => join(supervisor, name))].reduce(
    (bytes, path) => bytes - diskBytes(path),
    usedBytes(),
  );
};

async function stillWhole(): Promise<void> {
  assert.match(await engineOk(engine, ['logs', 'kept']), /^some output$/m);
  assert.equal(
    await engineOk(engine, ['run', '--rm', '--network', 'none', '-v', 'kept:/v', registry.reference, 'cat', '/v/file']),
    'a',
  );
  await engineOk(engine, ['start', '-a', 'kept']);
}

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
    assert.deepEqual([fsck().status, fsck('--repair').status], [0, 0]);
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
    await stillWhole();
    await engine.stop();
  });
});

/** Each of these, the promise says, is killed at random moments. A long run tells that it was. */
const PROMISED = ['pull', 'commit', 'create', 'remove container', 'remove images', 'prune'];
const LONG_RUN = 200;
/** In a long run the sizes are compared this often, and after the last kill. */
const ROUNDS_A_SIZE = 10;

const toldBytes = async (): Promise<number> =>
  (await callJson<DiskUsage>(engine.socketPath, 'GET', '/system/df')).DataRoot.Size;

/** Compares the size that the daemon tells with that of the file system, once what was deleted is gone from both. */
async function sizesAgree(linkBytes: number): Promise<void> {
  let [told, is] = [0, 0];
  const agree = async (): Promise<boolean> => {
    [told, is] = [await toldBytes(), usedBytes() + linkBytes];
    return Math.abs(told - is) <= is * 0.01;
  };
  await waitFor(() => `${told} bytes of df to agree with ${is} of the file system`, agree);
}

describe('kills in the middle', () => {
  test(
    'of loads, pulls, pushes, saves, commits, imports, removals and prunes leave no bytes behind',
    { timeout: 60_000 + ROUNDS * 20_000 },
    async (context) => {
      const random = randomNumbers(ROUNDS);
      const churn = await Churn.prepare(engine, registry, STORE === SNAPSHOTTER);
      await call(engine.socketPath, 'POST', PRUNE_IMAGES);
      // A link takes a block, as du(1) and the daemon see it, and none among the data of a btrfs.
      const linkBytes = disk ? (await toldBytes()) - usedBytes() : 0;
      await engine.stop();
      const start = contentBytes();
      for (let round = 0; round < ROUNDS; round++) {
        await engine.start();
        assert.deepEqual((await online(true)).findings, [], `round ${round}`);
        await churn.builds.allWhole();
        if (round % ROUNDS_A_SIZE === ROUNDS_A_SIZE - 1) await sizesAgree(linkBytes);
        churn.begin(random);
        churn.begin(random);
        await new Promise((resolve) => setTimeout(resolve, random(LONGEST_MS[round % 2] ?? 0)));
        await churn.kill();
      }
      context.diagnostic(`under way at a kill: ${JSON.stringify(Object.fromEntries(churn.killed))}`);
      if (ROUNDS >= LONG_RUN) for (const name of PROMISED) assert.ok((churn.killed.get(name) ?? 0) > 0, name);
      await engine.start();
      await sizesAgree(linkBytes);
      await churn.removeAll('kept');
      assert.deepEqual((await online(true)).findings, []);
      await sizesAgree(linkBytes);
      await stillWhole();
      await engine.stop();
      const { status, output } = fsck();
      assert.equal(status, 0, output);
      assertWithin(contentBytes(), start, 0.01, 'the data root');
      assert.deepEqual(readdirSync(join(dataRoot, STORE, 'staging')), []);
      await engine.start();
    },
  );
});
