/**
 * `engined migrate`: images and stopped containers of one storage driver become those of another. MIGRATE_IMAGES=20 is
 * the long run.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { BtrfsDisk, noBtrfs } from '../support/btrfs-disk.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { describeTree, withoutInit } from '../support/describe-tree.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, busyboxEntries, everyFileType } from '../support/image-builder.js';

interface Outcome {
  readonly code: number | null;
  readonly output: string;
}

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
const IMAGES = Number(process.env['MIGRATE_IMAGES'] ?? 4);
/** The last test starts the fourth. */
const CONTAINERS = Math.max(4, IMAGES / 2);
/** Lines of progress after which a run is killed. Together they reach into the copies of containers. */
const KILLED_AFTER = IMAGES < 20 ? [3, 5, 4] : [2, 6, 9, 4, 3];
/** The way back is killed less often: what it was doing is found again by the same code. */
const KILLED_AFTER_BACK = IMAGES < 20 ? [6] : KILLED_AFTER;

describe('migrate', { skip: noBtrfs() }, () => {
  const cleanup = new Cleanup();
  let engine: Engine;
  let data: string;
  /** A directory in memory, where what containers export is unpacked. */
  let trees: string;
  let driver = 'overlay2';
  /** Everything that clients see of images and containers. */
  let before1: Record<string, unknown>;

  const daemon = async (): Promise<void> => {
    engine = await Engine.start(engined({ args: ['--data-root', data, '--storage-driver', driver, '--live-restore'] }));
  };
  /** Runs the program, and kills it when it has printed so many lines. */
  const migrate = async (args: readonly string[], lines = Infinity): Promise<Outcome> => {
    const child = spawn(MAIN, [
      'migrate',
      '--config-file',
      join(engine.dir, 'daemon.json'),
      '--data-root',
      data,
      ...args,
    ]);
    let output = '';
    let seen = 0;
    child.stderr.setEncoding('utf8').on('data', (text: string) => (output += text));
    createInterface(child.stdout).on('line', (line) => {
      output += `${line}\n`;
      if (++seen === lines) child.kill('SIGKILL');
    });
    const [code] = (await once(child, 'close')) as [number | null];
    return { code, output };
  };
  const refused = async (args: readonly string[], message: RegExp): Promise<void> => {
    const { code, output } = await migrate(args);
    assert.match(output, message);
    assert.equal(code, 1);
  };
  const bytesOf = async (path: string): Promise<Buffer> => {
    const { status, body } = await call(engine.socketPath, 'GET', path);
    assert.equal(status, 200, path);
    return body;
  };
  const treeOf = async (id: string): Promise<string[]> => {
    const directory = mkdtempSync(join(trees, 'tree-'));
    const tar = await bytesOf(`/containers/${id}/export`);
    execFileSync('tar', ['-xp', '-C', directory, '--numeric-owner'], { input: tar });
    // Directories that no tar names, and what every container needs, have the time at which they were made.
    const made = describeTree(join(directory, 'made'), { directoryTimes: true }).filter(
      (line) => !line.startsWith(' '),
    );
    const lines = [...withoutInit(describeTree(directory)).filter((line) => !line.startsWith(' ')), ...made];
    rmSync(directory, { recursive: true });
    return lines;
  };
  const seen = async (): Promise<Record<string, unknown>> => {
    const get = <T>(path: string): Promise<T> => callJson<T>(engine.socketPath, 'GET', path);
    const images = await get<{ Id: string; RepoTags: string[] }[]>('/images/json?all=1');
    const names = images.flatMap(({ RepoTags }) => RepoTags).sort();
    const saved = await bytesOf(`/images/get?${names.map((name) => `names=${encodeURIComponent(name)}`).join('&')}`);
    const containers: Record<string, unknown>[] = [];
    for (const { Id } of await get<{ Id: string }[]>('/containers/json?all=1')) {
      const { Name, Config, State } = await get<Record<string, unknown>>(`/containers/${Id}/json`);
      const changes = await get<{ Path: string; Kind: number }[]>(`/containers/${Id}/changes`);
      containers.push({
        record: { Id, Name, Config, State },
        tree: await treeOf(Id),
        log: (await bytesOf(`/containers/${Id}/logs?stdout=1&stderr=1`)).toString('latin1'),
        diff: changes.map(({ Path, Kind }) => `${Kind} ${Path}`).sort(),
      });
    }
    return {
      images: images.map((image) => JSON.stringify(image)).sort(),
      saved: createHash('sha256').update(saved).digest('hex'),
      containers,
    };
  };

  before(async () => {
    const disk = new BtrfsDisk();
    cleanup.add(async () => disk.remove());
    data = join(disk.path, 'data');
    trees = mkdtempSync(join(tmpdir(), 'trees-'));
    execFileSync('mount', ['-t', 'tmpfs', 'trees', trees]);
    cleanup.add(async () => {
      execFileSync('umount', ['-l', trees]);
      rmSync(trees, { recursive: true });
    });
    await daemon();
    cleanup.add(() => engine.close());
    const base = buildLayer(busyboxEntries());
    for (let i = 0; i < IMAGES; i++) {
      const own = buildLayer([
        { path: 'etc/number', content: String(i) },
        ...(i % 3 === 0 ? [{ path: 'bin/.wh.vi' }] : everyFileType()),
      ]);
      const layers = i % 2 === 0 ? [base, own] : [base, own, buildLayer([{ path: `only/${i}`, content: 'x' }])];
      await load(engine, archiveOf(oldArchive(buildImage({ layers, config: { Cmd: ['sh'] } }), [`image:${i}`])));
    }
    const change =
      'echo $0; echo changed >/etc/number; mkdir -p /made/deep; echo x >/made/deep/x; ln -f /made/deep/x /made/twin; ' +
      'rm -rf /only; chmod 750 /home; touch -d @1600000000 /made/deep; rm -f /bin/wget; ' +
      '[ -e /made/fifo ] || mkfifo /made/fifo';
    for (let i = 0; i < CONTAINERS; i++)
      await engineOk(engine, [
        'run',
        '--network',
        'none',
        '--name',
        `c${i}`,
        `image:${i}`,
        'sh',
        '-c',
        change,
        String(i),
      ]);
    before1 = await seen();
  });
  after(() => cleanup.run());

  test('it is refused while the daemon or a container runs, and for what is no driver', async () => {
    await refused(['--to', 'btrfs'], /is in use by process \d+/);
    await engineOk(engine, ['run', '-d', '--network', 'none', '--name', 'runs', 'image:0', 'sleep', '1000']);
    await engine.stop();
    await refused(['--to', 'btrfs'], /containers are running: runs; start the daemon, stop them/);
    await engine.start();
    await engineOk(engine, ['rm', '-f', 'runs']);
    await engine.stop();
    await refused(['--to', 'floppy'], /driver not supported: floppy/);
    await refused(['--remove', 'overlay2'], /are the only ones in/);
    await refused([], /give either --to DRIVER or --remove DRIVER/);
    assert.equal(existsSync(join(data, 'migration.json')), false);
  });

  for (const [from, to, killedAfter] of [
    ['overlay2', 'btrfs', KILLED_AFTER],
    ['btrfs', 'overlay2', KILLED_AFTER_BACK],
  ] as const)
    test(`${from} to ${to}, interrupted ${killedAfter.length} times: nothing is lost and nothing changes`, async () => {
      await engine.stop();
      let printed = '';
      for (const lines of killedAfter) {
        const { code, output } = await migrate(['--to', to], lines);
        assert.equal(code, null, output);
        assert.ok(existsSync(join(data, 'migration.json')), output);
        printed += output;
      }
      if (killedAfter.length > 1 && IMAGES < 20)
        assert.match(printed, /^container 1 of/m, 'kills reach the containers');
      const { code, output } = await migrate(['--to', to]);
      assert.equal(code, 0, output);
      assert.match(output, new RegExp(`engined migrate --remove ${from}`));
      await refused(['--to', from], new RegExp(`already holds data of the storage driver ${from}`));
      driver = to;
      const old = engine;
      await old.close();
      await daemon();
      assert.deepEqual(await seen(), before1);
      const report = await callJson<{ findings: unknown[] }>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
      assert.deepEqual(report.findings, []);
      if (to === 'btrfs') {
        assert.equal(await engineOk(engine, ['start', '-a', 'c3']), '3');
        before1 = await seen();
      }
      await engine.stop();
      const removed = await migrate(['--remove', from]);
      assert.equal(removed.code, 0, removed.output);
      assert.equal(existsSync(join(data, from)), false);
    });

  test('a daemon that starts in between ends the migration, which then begins anew, and not without room', async () => {
    await migrate(['--to', 'btrfs'], 3);
    await engine.start();
    assert.match(engine.log, /a migration was not finished and cannot go on/);
    assert.deepEqual(await seen(), before1);
    assert.equal(await engineOk(engine, ['start', '-a', 'c3']), '3');
    const grow = ['truncate', '-s', '1000G', '/large'];
    await engineOk(engine, ['run', '--network', 'none', '--name', 'large', 'image:0', ...grow]);
    await engine.stop();
    await refused(['--to', 'btrfs'], /already holds data of the storage driver btrfs/);
    await refused(
      ['--remove', 'overlay2'],
      /was not finished, so overlay2 has what was not copied: remove the copy first/,
    );
    assert.equal((await migrate(['--remove', 'btrfs'])).code, 0);
    assert.ok(!existsSync(join(data, 'migration.json')));
    assert.equal(existsSync(join(data, 'btrfs')), false);
    await refused(['--to', 'btrfs'], /not enough space: the copy needs about \d+ bytes, and \d+ are free/);
    assert.equal(existsSync(join(data, 'migration.json')), false);
  });
});
