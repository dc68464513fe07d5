/** The check of the data root, offline and online: every byte has an owner, orphans go, and nothing else does. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { SeededRegistry } from '../support/busybox-image.js';
import { BtrfsDisk } from '../support/btrfs-disk.js';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { assertWithin, diskBytes } from '../support/disk.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
import { archiveOf, indexLayout, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildIndex, generatedLayer, pushImage, pushManifest, tarOf } from '../support/image-builder.js';
import { call } from '../support/http.js';
import { randomNumbers } from '../support/random-numbers.js';
import { pull } from '../support/pulls.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
/** Rounds of changes with a kill. The long run: ENGINE_CHURN_ROUNDS=500. */
const ROUNDS = Number(process.env['ENGINE_CHURN_ROUNDS'] ?? 4);
/** Another storage driver, or supervisor-snapshotter, makes these rounds alone: ENGINE_CHURN_STORE=btrfs. */
const STORE = process.env['ENGINE_CHURN_STORE'] ?? 'overlay2';
const SNAPSHOTTER = 'supervisor-snapshotter';
/** A build by its client takes longer than all else. */
const WAIT_MS = STORE === SNAPSHOTTER ? 1_200 : 400;
const skip = STORE === 'overlay2' ? false : `is for overlay2 and not for ${STORE}`;

interface Report {
  readonly bytes: number;
  readonly kinds: { kind: string; count: number; bytes: number }[];
  readonly findings: { path: string; kind: string; reason: string; outcome: string }[];
}

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let dataRoot: string;

before(async () => {
  const disk = STORE === 'btrfs' ? new BtrfsDisk() : undefined;
  if (disk) cleanup.add(async () => disk.remove());
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

/** Without what remembers that something happened, and grows for a while: the log of events and databases. */
const contentBytes = (): number => {
  const supervisor = join(dataRoot, 'supervisor');
  const databases = readdirSync(supervisor, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.db'),
  );
  return [join(dataRoot, 'events'), ...databases.map((name) => join(supervisor, name))].reduce(
    (bytes, path) => bytes - diskBytes(path),
    diskBytes(dataRoot),
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

/** Builds of images for two platforms, each of which is another one. */
class PlatformBuilds {
  readonly #buildx: Buildx;
  #count = 0;

  constructor(private readonly engine: Engine) {
    this.#buildx = new Buildx(join(engine.dir, 'builds'), engine.host);
    const text = 'FROM scratch\nLABEL built=here\nARG OF\nLABEL of=$OF\nARG TARGETARCH\nCOPY $TARGETARCH /file\n';
    this.#buildx.write('a/Dockerfile', text);
    for (const arch of ['amd64', 'arm64']) this.#buildx.write(`a/${arch}`, arch.repeat(100_000));
  }

  build(): Promise<unknown> {
    const which = ['--platform', 'linux/amd64,linux/arm64', '--build-arg', `OF=${(this.#count += 1)}`];
    return this.#buildx.run(['build', ...which, '--provenance=mode=min', '-t', 'built:1', '.'], { in: 'a' });
  }

  /** Checks that each of them is here for both. */
  async allWhole(): Promise<void> {
    type Listed = {
      readonly Labels: Readonly<Record<string, string>> | null;
      readonly Manifests?: readonly { readonly Available: boolean }[];
    };
    const list = await callJson<Listed[]>(this.engine.socketPath, 'GET', '/images/json?manifests=1&all=1');
    for (const { Labels, Manifests = [] } of list.filter((image) => image.Labels?.['built'] === 'here'))
      assert.ok(Manifests.length === 4 && Manifests.every(({ Available }) => Available), JSON.stringify(Labels));
  }
}

const PRUNE = `/images/prune?filters=${encodeURIComponent('{"dangling":["false"]}')}`;

/** Returns the changes that are killed in the middle. */
async function changes(builds: PlatformBuilds): Promise<readonly (() => Promise<unknown>)[]> {
  const image = buildImage({
    layers: [1, 2, 3].map((seed) => generatedLayer({ root: `r${seed}`, bytes: 2 << 20, files: 200, seed })),
    config: {},
  });
  const archive = archiveOf(oldArchive(image, ['churn:1']));
  const tar = tarOf([{ path: 'f', content: Buffer.alloc(3 << 20, 1) }]);
  const other = buildImage({ layers: image.layers.slice(1), config: {}, architecture: 'arm64' });
  for (const one of [image, other]) await pushImage(registry.url, 'churn', one.platform.architecture, one);
  await pushManifest(registry.url, 'churn', '1', buildIndex([image, other]));
  const both = archiveOf(indexLayout([image, other], 'docker.io/library/churn:both'));
  const arm = encodeURIComponent(JSON.stringify(other.platform));
  return [
    () => load(engine, archive),
    () => load(engine, both),
    () => call(engine.socketPath, 'GET', '/images/get?names=churn:both'),
    ...(STORE === SNAPSHOTTER ? [() => builds.build()] : []),
    () => pull(engine, `${registry.host}/churn:1`),
    () => attempt(engine, ['pull', '--platform', 'linux/arm64', `${registry.host}/churn:1`]),
    () => call(engine.socketPath, 'DELETE', `/images/${registry.host}/churn:1?force=1&platforms=${arm}`),
    () => docker(engine, ['push', `${registry.host}/churn:1`]),
    () => call(engine.socketPath, 'GET', `/images/get?names=${registry.host}/churn:1`),
    () => attempt(engine, ['commit', 'kept', 'committed:1']),
    () =>
      call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=imported&tag=1', {
        body: tar,
        headers: { 'Content-Type': 'application/x-tar' },
      }),
    () => attempt(engine, ['rmi', '-f', 'churn:1', `${registry.host}/churn:1`, 'imported:1', 'committed:1']),
    () => attempt(engine, ['rmi', '-f', 'churn:both', 'built:1']),
    () => call(engine.socketPath, 'POST', PRUNE),
    () =>
      attempt(engine, [
        'run',
        '--rm',
        '--network',
        'none',
        registry.reference,
        'sh',
        '-c',
        'head -c 2000000 /dev/zero >/f',
      ]),
    () => attempt(engine, ['create', '--name', 'churn', registry.reference]),
    () => attempt(engine, ['rm', '-f', 'churn']),
  ];
}

describe('kills in the middle', () => {
  test(
    'of loads, pulls, pushes, saves, commits, imports, removals and prunes leave no bytes behind',
    { timeout: 60_000 + ROUNDS * 20_000 },
    async () => {
      const random = randomNumbers(ROUNDS);
      const builds = new PlatformBuilds(engine);
      const works = await changes(builds);
      await call(engine.socketPath, 'POST', PRUNE);
      await engine.stop();
      const start = contentBytes();
      for (let round = 0; round < ROUNDS; round++) {
        await engine.start();
        assert.deepEqual((await online(true)).findings, [], `round ${round}`);
        await builds.allWhole();
        const under = [0, 1].map(() => Promise.resolve(works[random(works.length)]?.()).catch(() => undefined));
        await new Promise((resolve) => setTimeout(resolve, random(WAIT_MS)));
        await engine.stop('SIGKILL');
        await Promise.all(under);
      }
      await engine.start();
      await attempt(engine, ['rm', '-f', 'churn']);
      const containers = (await engineOk(engine, ['ps', '-aq', '--no-trunc'])).split('\n');
      const kept = await engineOk(engine, ['inspect', '--format', '{{.Id}}', 'kept']);
      for (const id of containers) if (id !== kept) await attempt(engine, ['rm', '-f', id]);
      await call(engine.socketPath, 'POST', PRUNE);
      await call(engine.socketPath, 'POST', '/build/prune?all=1');
      assert.deepEqual((await online(true)).findings, []);
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
