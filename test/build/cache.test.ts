/** The build cache as clients see it: measured, pruned, collected, and whole after a kill. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';
import { waitFor } from '../support/wait.js';

interface CacheItem {
  readonly ID: string;
  readonly ' Parents'?: readonly string[];
  readonly Type: string;
  readonly Description: string;
  readonly InUse: boolean;
  readonly Shared: boolean;
  readonly Size: number;
}
interface Usage {
  readonly BuildCache: readonly CacheItem[];
  readonly BuilderSize?: number;
}
interface Report {
  readonly findings: readonly unknown[];
}

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));

const cleanup = new Cleanup();
const directory = mkdtempSync(join(tmpdir(), 'cache-'));
const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';
/** Content of the configuration file of the next start. */
const file: Record<string, unknown> = { builder: { history: { maxAge: '1h', maxEntries: 2 } } };
let engine: Engine;
let buildx: Buildx;

before(async () => {
  engine = await Engine.start(await withImage(engined({ file })));
  cleanup.add(() => engine.close());
  buildx = new Buildx(join(directory, 'work'), engine.host);
  buildx.write('c/Dockerfile', `FROM ${SEEDED_IMAGE}\nCOPY f /f\nRUN echo 123456 > /y\n`);
  buildx.write('c/f', 'x'.repeat(5000));
});
after(async () => {
  rmSync(directory, { recursive: true, force: true });
  await cleanup.run();
});

const cached = async (version = '1.51'): Promise<Usage> =>
  callJson<Usage>(engine.socketPath, 'GET', `/v${version}/system/df?type=build-cache`);
const contexts = async (): Promise<readonly CacheItem[]> =>
  (await cached()).BuildCache.filter(({ Type }) => Type === 'source.local');
const prune = async (query: string): Promise<{ readonly status: number; readonly body: string }> => {
  const { status, text } = await call(engine.socketPath, 'POST', `/v1.51/build/prune${query}`);
  return { status, body: text };
};
const filters = (value: unknown): string => `?filters=${encodeURIComponent(JSON.stringify(value))}`;

describe('the build cache', { skip }, () => {
  test('is listed for every client', async () => {
    await buildx.ok(['build', '-t', 'app', 'c']);
    const usage = await cached();
    const [context] = usage.BuildCache.filter(({ Description }) => Description === 'local source for context');
    assert.deepEqual(context && { ...context, ID: '', CreatedAt: '', LastUsedAt: '' }, {
      ID: '',
      Type: 'source.local',
      Description: 'local source for context',
      InUse: false,
      Shared: false,
      Size: 5000,
      CreatedAt: '',
      LastUsedAt: '',
      UsageCount: 1,
    });
    const shown = await buildx.ok(['buildx', 'du', '--verbose', '--filter', 'type=source.local']);
    assert.match(shown.stdout, /Mutable: +true\nReclaimable: +true\nShared: +false\nSize: +5kB\n/);
    assert.match(shown.stdout, /Usage count: +1\nLast used: .*\nType: +source\.local/);
    assert.match((await buildx.ok(['system', 'df', '-v'])).stdout, /source\.local +5kB/);
    const older = await cached('1.41');
    assert.equal(
      older.BuilderSize,
      older.BuildCache.reduce((sum, { Size }) => sum + Size, 0),
    );
    assert.equal('BuilderSize' in usage, false);
  });

  test('has the steps, which stay as long as an image has their files', async () => {
    const step = async (text: string): Promise<CacheItem | undefined> =>
      (await cached()).BuildCache.find(({ Description }) => Description.includes(text));
    const [copy, run] = [await step('COPY f /f'), await step('echo 123456')];
    assert.deepEqual([copy?.Type, copy?.Shared, copy?.InUse, copy?.Size], ['regular', true, false, 5000]);
    assert.deepEqual([run?.Type, run?.Shared, run?.InUse, run?.Size], ['regular', true, false, 7]);
    assert.deepEqual(run?.[' Parents'], [copy?.ID]);
    await prune('?filters={"type":["regular"]}');
    assert.equal((await step('COPY f /f'))?.ID, copy?.ID);
    await engineOk(engine, ['rmi', 'app']);
    assert.deepEqual([(await step('echo 123456'))?.Shared, (await step('COPY f /f'))?.Shared], [false, false]);
    assert.match((await buildx.ok(['build', '-t', 'app', 'c'])).stderr, /COPY f \/f\n#\d+ CACHED/);
    await engineOk(engine, ['rmi', 'app']);
    const { body } = await prune('?filters={"type":["regular"]}');
    const { CachesDeleted, SpaceReclaimed } = JSON.parse(body) as { CachesDeleted: string[]; SpaceReclaimed: number };
    assert.deepEqual([CachesDeleted, SpaceReclaimed], [[run?.ID, copy?.ID], 5007]);
    assert.equal(await step('COPY f /f'), undefined);
  });

  test('refuses filters in the words of dockerd', async () => {
    const answers: readonly (readonly [query: string, message: string])[] = [
      [filters({ x: ['y'] }), "failed to prune build cache: invalid filter 'x'"],
      [filters({ until: ['1h', '2h'] }), 'failed to prune build cache: filters expect only one value'],
      [filters({ id: ['a', 'b'] }), 'failed to prune build cache: filters expect only one value'],
      [
        filters({ until: ['1h'], 'unused-for': ['1h'] }),
        'failed to prune build cache: conflicting filters: "until" and "unused-for"',
      ],
      [
        filters({ until: ['abc'] }),
        'failed to prune build cache: "until" filter expects a duration (e.g., \'24h\') or a timestamp: ' +
          'failed to parse value as time or duration: "abc"',
      ],
      [
        '?max-used-space=abc',
        'max-used-space is in bytes and expects an integer, got abc: strconv.Atoi: parsing "abc": invalid syntax',
      ],
    ];
    for (const [query, message] of answers) {
      const { status, body } = await prune(query);
      assert.deepEqual([status, JSON.parse(body)], [400, { message }], query);
    }
  });

  test('is pruned as far as the client asks, which is an event', async () => {
    assert.deepEqual(await prune(filters({ until: ['1h'] })), {
      status: 200,
      body: '{"CachesDeleted":null,"SpaceReclaimed":0}\n',
    });
    const [context] = await contexts();
    assert.ok(context);
    const { body } = await prune(filters({ id: [context.ID], type: ['source.local'] }));
    assert.deepEqual(JSON.parse(body), { CachesDeleted: [context.ID], SpaceReclaimed: context.Size });
    // The event may be of this very millisecond.
    const until = ((Date.now() + 2) / 1000).toFixed(3);
    const events = await buildx.ok(['events', '--since', '0', '--until', until, '--filter', 'type=builder']);
    assert.match(events.stdout, new RegExp(`builder prune .*reclaimed=${context.Size}\\)`));
    assert.deepEqual(await contexts(), []);

    await buildx.ok(['build', 'c']);
    const kept = await buildx.ok([
      'builder',
      'prune',
      '-f',
      '--filter',
      'type=source.local',
      '--max-used-space',
      '1GB',
    ]);
    assert.match(kept.stdout, /Total:\s+0B/);
    const gone = await buildx.ok(['builder', 'prune', '-f', '--filter', 'type=source.local']);
    assert.match(gone.stdout, /Total:\s+5kB/);
    await buildx.ok(['build', 'c']);
    await buildx.ok(['system', 'prune', '-f']);
    assert.deepEqual(await contexts(), []);
  });

  test('is whole after kills, and nothing of it is nobody’s', async () => {
    for (const moment of [/load build definition/, /COPY f/, /RUN echo/]) {
      const building = buildx.start(['build', '--no-cache', 'c']);
      await building.said(moment);
      await engine.stop('SIGKILL');
      await building.ended;
      await engine.start();
    }
    await buildx.ok(['build', 'c']);
    await engine.stop('SIGKILL');
    await engine.start();
    const again = (await buildx.ok(['build', 'c'])).stderr;
    assert.match(again, /COPY f \/f\n#\d+ CACHED/);
    assert.match(again, /RUN echo 123456 > \/y\n#\d+ CACHED/);
    const report = await callJson<Report>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
    assert.deepEqual(report.findings, []);
  });

  test('fsck finds and repairs damaged records, those without their files, and files of no record', async () => {
    // No image has the layers.
    buildx.write('d/Dockerfile', 'FROM scratch\nCOPY f /gone\n');
    buildx.write('d/f', 'y'.repeat(3000));
    const build = async (name: string): Promise<string> =>
      (await buildx.ok(['buildx', 'build', '-o', 'type=cacheonly', name])).stderr;
    await callJson(engine.socketPath, 'POST', '/images/prune');
    for (const name of ['c', 'd']) await build(name);
    const data = join(engine.dir, 'data');
    const cache = join(data, 'builder/cache');
    await engine.stop();
    const files = readdirSync(join(cache, 'records')).map((name) => join(cache, 'records', name));
    const records = files.map((path) => ({ path, text: readFileSync(path, 'utf8') }));
    const of = (word: string): { readonly path: string; readonly text: string } =>
      records.find(({ text }) => text.includes(word)) ?? assert.fail(word);
    const [copy, gone, source] = [of('COPY f /f'), of('COPY f /gone'), of('source.local')];
    // A build that was killed may have left a second one.
    const runs = records.filter(({ text }) => text.includes('echo 123456'));
    for (const { path, text } of runs) writeFileSync(path, text.slice(0, text.length / 2));
    const layer = /"layer":\s*"sha256:([0-9a-f]{64})"/.exec(gone.text)?.[1] ?? assert.fail(gone.text);
    rmSync(join(data, `overlay2/index/${layer}.json`));

    rmSync(join(cache, 'directories', basename(source.path, '.json')), { recursive: true });
    mkdirSync(join(cache, 'directories/nobodys/deep'), { recursive: true });
    const stray = basename(copy.path).replace(/^./, (letter) => (letter === 'a' ? 'b' : 'a'));
    writeFileSync(join(cache, 'records', stray), copy.text);
    const fsck = (...more: string[]): { readonly status: number | null; readonly stdout: string } =>
      spawnSync(MAIN, ['fsck', '--data-root', data, ...more], { encoding: 'utf8' });
    const dry = fsck();
    const at = (name: string): string => `kept: builder/cache/${name}: `;
    assert.equal(dry.status, 4, dry.stdout);
    for (const path of [...runs.map((run) => run.path), gone.path, source.path, stray])
      assert.ok(
        dry.stdout.includes(`${at(`records/${basename(path)}`)}a record of the build cache that is`),
        dry.stdout,
      );
    assert.ok(dry.stdout.includes(`${at('directories/nobodys')}a directory of no record`), dry.stdout);
    // The layer of the damaged record is nobody's now.
    assert.match(dry.stdout, /kept: overlay2\/layers\/[0-9a-z]+: a layer without a record, or one that nothing uses/);
    assert.deepEqual([fsck('--repair').status, fsck().status], [1, 0]);
    await engine.start();
    const again = await build('c');
    assert.match(again, /COPY f \/f\n#\d+ CACHED/);
    assert.doesNotMatch(await build('d'), /CACHED/);
    assert.doesNotMatch(again, /RUN echo 123456 > \/y\n#\d+ CACHED/);
    const report = await callJson<Report>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
    assert.deepEqual(report.findings, []);
  });

  test('builder.gc: rules are shown and applied; builder.history: builds beyond the limits are forgotten', async () => {
    const listed = async (): Promise<string[]> =>
      (await buildx.ok(['buildx', 'history', 'ls', '--format', '{{.Ref}}'])).stdout.trim().split('\n');
    // Those that are younger stay, however many they are.
    assert.ok((await listed()).length >= 3);
    const shown = (await buildx.ok(['buildx', 'inspect'])).stdout;
    const filter = 'type==source.local,type==exec.cachemount,type==source.git.checkout';
    assert.ok(shown.includes(`GC Policy rule#0:\n All:            false\n Filters:        ${filter}\n`), shown);
    assert.match(shown, / Keep Duration: +48h0m0s\n Max Used Space: \S+\nGC Policy rule#1:\n/);
    assert.match(shown, /rule#3:\n All: +true\n Reserved Space: \S+\n Max Used Space: \S+\n Min Free Space: \S+\n/);
    assert.notDeepEqual(await contexts(), []);
    file['builder'] = {
      gc: { policy: [{ filter: ['type=source.local'], maxUsedSpace: '1' }] },
      history: { maxAge: '0', maxEntries: 2 },
    };
    await engine.stop();
    await engine.start();
    await waitFor('the collection', async () => (await contexts()).length === 0);
    const own = (await buildx.ok(['buildx', 'inspect'])).stdout;
    assert.match(own, /rule#0:\n All: +false\n Filters: +type==source\.local\n Max Used Space: 1B\n/);
    assert.doesNotMatch(own, /rule#1/);
    assert.equal((await listed()).length, 2);
    await buildx.ok(['build', '-q', 'd']);
    assert.equal((await listed()).length, 2);
  });
});
