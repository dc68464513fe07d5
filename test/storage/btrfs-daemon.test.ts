/** A daemon on btrfs: what clients see of the driver, sizes by quota groups, kills, subvolumes that containers make. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statfsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { deleteSubvolume, makeSnapshot, makeSubvolume, setReadOnly } from '../../src/sys/btrfs/subvolumes.js';
import { quotaState } from '../../src/sys/btrfs/quota-groups.js';
import { BtrfsDisk, noBtrfs } from '../support/btrfs-disk.js';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk } from '../support/cli.js';
import { assertWithin } from '../support/disk.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { publishImage, startFaultyServer } from '../support/faulty-registry.js';
import { callJson, open } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import {
  type BuiltLayer,
  buildImage,
  buildLayer,
  busyboxEntries,
  generatedBytes,
  type LayerEntry,
  sha256,
} from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';

interface DiskUsage {
  readonly LayersSize: number;
  readonly DataRoot: { readonly Size: number; readonly OtherDrivers: { readonly Driver: string }[] };
}
interface Fsck {
  readonly drivers: readonly string[];
  readonly findings: readonly unknown[];
}

const MIB = 1 << 20;
const archive = archiveOf(
  oldArchive(
    buildImage({
      layers: [
        buildLayer([...busyboxEntries(), { path: 'etc/old', content: 'old' }, { path: 'etc/gone', content: 'gone' }]),
        buildLayer([{ path: 'etc/.wh.gone' }, { path: 'etc/new', content: 'new' }]),
      ],
      config: { Cmd: ['sh'] },
    }),
    ['busybox:1'],
  ),
);
const reason = noBtrfs();

describe('on btrfs', { skip: reason }, () => {
  const cleanup = new Cleanup();
  let disk: BtrfsDisk;
  let engine: Engine;
  let data: string;
  const kind = (...args: string[]): EngineKind => engined({ args: ['--data-root', join(disk.path, 'data'), ...args] });
  const run = (...args: string[]): Promise<string> => engineOk(engine, ['run', '--network', 'none', ...args]);
  const shell = (name: string, command: string, ...options: string[]): Promise<string> =>
    run('--name', name, ...options, 'busybox:1', 'sh', '-c', command);
  const treeOf = async (name: string): Promise<string> =>
    join(data, 'btrfs/writable', await engineOk(engine, ['inspect', '-f', '{{.Id}}', name]), 'tree');
  const fsck = (): Promise<Fsck> => callJson<Fsck>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');

  before(async () => {
    // By itself the kernel gives back nothing meanwhile, and it waits for the driver.
    disk = new BtrfsDisk(2048, ['commit=300']);
    cleanup.add(async () => disk.remove());
    data = join(disk.path, 'data');
    engine = await Engine.start(kind('--storage-driver', 'btrfs', '--storage-opt', 'btrfs.min_space=10M'));
    cleanup.add(() => engine.close());
    await load(engine, archive);
  });
  after(() => cleanup.run());

  test('containers have the files of their image, and commit, diff, cp, export and build work', async () => {
    assert.equal(await shell('first', 'cat /etc/new; ls /etc/gone 2>&1 | wc -l; rm /etc/old; echo x >/y'), 'new1');
    assert.deepEqual((await engineOk(engine, ['diff', 'first'])).split('\n').sort(), ['A /y', 'C /etc', 'D /etc/old']);
    await engineOk(engine, ['commit', 'first', 'committed:1']);
    assert.match(
      (await attempt(engine, ['run', '--rm', '--network', 'none', 'committed:1', 'cat', '/y', '/etc/old'])).stdout,
      /^x/,
    );
    assert.match(await run('--rm', 'committed:1', 'sh', '-c', 'ls /etc'), /^(?!.*old)/s);
    const copied = join(engine.dir, 'y');
    await engineOk(engine, ['cp', 'first:/y', copied]);
    assert.equal(readFileSync(copied, 'utf8'), 'x\n');
    const dockerfile = 'FROM busybox:1\nRUN echo built >/built && rm /etc/new\nCOPY --from=committed:1 /y /copied\n';
    await dockerOk(engine, ['build', '-q', '-t', 'built:1', '-'], { input: dockerfile });
    assert.equal(
      await run('--rm', 'built:1', 'sh', '-c', 'cat /built /copied; ls /etc/new 2>/dev/null || true'),
      'built\nx',
    );
  });

  test('a pull whose upper layers came first goes on after a kill, and each is made on the one below', async () => {
    const large = (name: string, seed: number): LayerEntry => ({ path: name, content: generatedBytes(3 * MIB, seed) });
    const lowest = buildLayer([...busyboxEntries(), large('a/one', 1), large('a/two', 2), { path: 'b/gone' }]);
    const upper = [
      buildLayer([large('a/two', 3), { path: 'b/.wh.gone' }, large('b/three', 4)], 'none'),
      buildLayer([{ path: 'a/.wh..wh..opq' }, large('a/four', 5), { path: 'b/.wh.three' }], 'none'),
    ];
    const image = buildImage({ layers: [lowest, ...upper] });
    const server = await startFaultyServer();
    try {
      publishImage(server, image, 'pulled');
      server.intercept = ({ url = '' }) => url.endsWith(lowest.digest);
      const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${server.host}/pulled:latest`);
      reply.message.on('error', () => undefined).resume();
      const partial = join(data, 'image/partial');
      const isWhole = ({ digest, blob }: BuiltLayer): boolean =>
        statSync(join(partial, digest.slice(7)), { throwIfNoEntry: false })?.size === blob.length;
      await waitFor('the upper layers to be whole', () => upper.every(isWhole));
      await engine.stop('SIGKILL');
      await engine.start();
      server.intercept = undefined;
      await pullOk(engine, `${server.host}/pulled:latest`);
      for (const { digest } of upper)
        assert.equal(server.requests.filter((line) => line.endsWith(digest)).length, 1, 'no layer is fetched twice');
      assert.deepEqual([readdirSync(partial), readdirSync(join(data, 'btrfs/staging'))], [[], []]);
      const files = await run('--rm', `${server.host}/pulled:latest`, 'sh', '-c', 'ls a b; sha256sum a/*');
      const sum = sha256(generatedBytes(3 * MIB, 5)).slice(7);
      assert.equal(files, `a:\nfour\n\nb:\n${sum}  a/four`);
      await engineOk(engine, ['rmi', `${server.host}/pulled:latest`]);
    } finally {
      await server.stop();
    }
  });

  test('info names the driver and what it stands on', async () => {
    const json = await callJson(engine.socketPath, 'GET', '/info');
    const { Driver, DriverStatus } = json as { Driver: string; DriverStatus: [string, string][] };
    assert.equal(Driver, 'btrfs');
    const rows = new Map(DriverStatus);
    assert.equal(rows.get('Btrfs'), '');
    assert.match(rows.get('Kernel Version') ?? '', /^\d+\.\d+/);
    assert.equal(rows.get('Quota Groups'), 'qgroup');
  });

  test('layers are read-only subvolumes', async () => {
    const trees = readdirSync(join(data, 'btrfs/layers')).map((name) => join(data, 'btrfs/layers', name, 'tree'));
    assert.ok(trees.length >= 2);
    for (const tree of trees)
      assert.throws(() => execFileSync('touch', [join(tree, 'x')], { stdio: 'pipe' }), /Read-only file system/);
  });

  test('a size ends what a container writes, also after a kill of the daemon and without quota groups', async () => {
    const write = 'dd if=/dev/urandom of=/big bs=1M count=$0 2>/tmp/e; sync; wc -c </big; grep -o quota /tmp/e || true';
    const sized = (name: string, mib: number): Promise<string> =>
      run('--name', name, '--storage-opt', 'size=20M', 'busybox:1', 'sh', '-c', write, String(mib));
    assert.equal(await sized('half', 10), String(10 * MIB));
    const bytes = Number(
      (
        await attempt(engine, [
          'run',
          '--name',
          'full',
          '--network',
          'none',
          '--storage-opt',
          'size=20M',
          'busybox:1',
          'sh',
          '-c',
          write,
          '40',
        ])
      ).stdout.split('\n', 1)[0],
    );
    assert.ok(bytes > 18 * MIB && bytes <= 20 * MIB, `${bytes} bytes`);
    const again = async (): Promise<void> => {
      const [line] = (await docker(engine, ['start', '-a', 'full'])).stdout.split('\n');
      assert.ok(Number(line) > 18 * MIB && Number(line) <= 20 * MIB, line);
    };
    execFileSync('dd', ['if=/dev/urandom', `of=${join(engine.dir, 'large')}`, 'bs=1M', 'count=40'], { stdio: 'pipe' });
    assert.match(
      (await docker(engine, ['cp', join(engine.dir, 'large'), 'full:/large'])).stderr,
      /disk quota exceeded/,
    );
    await engine.stop('SIGKILL');
    await engine.start();
    await again();
    execFileSync('btrfs', ['quota', 'disable', disk.path]);
    assert.equal(quotaState(disk.path), 'off');
    await again();
    assert.equal(quotaState(disk.path), 'on');
  });

  test('a size is kept also when the counts of the quota groups are wrong', async () => {
    execFileSync('btrfs', ['qgroup', 'create', '1/1', disk.path]);
    const id = execFileSync('btrfs', ['inspect-internal', 'rootid', await treeOf('full')], { encoding: 'utf8' }).trim();
    execFileSync('btrfs', ['qgroup', 'assign', '--no-rescan', `0/${id}`, '1/1', disk.path], { stdio: 'pipe' });
    assert.equal(quotaState(disk.path), 'inconsistent');
    const { stdout } = await docker(engine, ['start', '-a', 'full']);
    const bytes = Number(stdout.split('\n', 1)[0]);
    assert.ok(bytes > 18 * MIB && bytes <= 20 * MIB, stdout);
    assert.equal(quotaState(disk.path), 'on');
  });

  test('sizes that cannot be are refused in the words of others, and leave nothing', async () => {
    const before = readdirSync(join(data, 'btrfs/writable'));
    for (const [option, message] of [
      ['size=1M', /btrfs: storage size cannot be less than 10\.49MB/],
      ['size=0', /btrfs: invalid storage size: 0B/],
      ['size=zz', /invalid size: 'zz'/],
      ['size=1P', /larger than the file system of the data root/],
      ['colour=green', /Unknown option colour/],
    ] as const)
      assert.match((await attempt(engine, ['create', '--storage-opt', option, 'busybox:1'])).stderr, message, option);
    assert.deepEqual(readdirSync(join(data, 'btrfs/writable')), before);
    assert.deepEqual(readdirSync(join(data, 'btrfs/staging')), []);
  });

  test('subvolumes that a container made, read-only ones too, go with it, and their space comes back', async () => {
    await shell('nested', 'true');
    const tree = await treeOf('nested');
    makeSubvolume(join(tree, 'sub'));
    makeSubvolume(join(tree, 'sub/deeper'));
    execFileSync('dd', ['if=/dev/urandom', `of=${join(tree, 'sub/deeper/big')}`, 'bs=1M', 'count=24'], {
      stdio: 'pipe',
    });
    makeSnapshot(join(tree, 'sub/deeper'), join(tree, 'sub/copy'));
    setReadOnly(join(tree, 'sub/copy'), true);
    execFileSync('sync', ['-f', disk.path]);
    const free = (): number => statfsSync(disk.path).bfree * statfsSync(disk.path).bsize;
    const before = free();
    await engineOk(engine, ['rm', 'nested']);
    await waitFor('the space to come back', () => free() > before + 22 * MIB);
    assert.equal(existsSync(tree), false);
  });

  test('a container whose subvolume somebody deleted says so and can be removed', async () => {
    await shell('bereft', 'true');
    const tree = await treeOf('bereft');
    deleteSubvolume(tree);
    assert.match((await docker(engine, ['start', 'bereft'])).stderr, /the subvolume .* of the container was deleted/);
    await engineOk(engine, ['rm', 'bereft']);
  });

  test('an image whose subvolume somebody deleted says so, and can be removed and loaded again', async () => {
    const other = archiveOf(
      oldArchive(buildImage({ layers: [buildLayer([...busyboxEntries(), { path: 'other' }])] }), ['other:1']),
    );
    const layers = (): string[] => readdirSync(join(data, 'btrfs/layers'));
    const before = new Set(layers());
    assert.equal((await load(engine, other)).error, undefined);
    for (const name of layers()) if (!before.has(name)) deleteSubvolume(join(data, 'btrfs/layers', name, 'tree'));
    const create = ['create', '--name', 'other', 'other:1', 'sh'];
    assert.match(
      (await attempt(engine, create)).stderr,
      /the files of a layer, .*, were deleted: remove the images that have it/,
    );
    await engineOk(engine, ['rmi', 'other:1']);
    assert.equal((await load(engine, other)).error, undefined);
    await engineOk(engine, create);
    await engineOk(engine, ['rm', 'other']);
    await engineOk(engine, ['rmi', 'other:1']);
  });

  test('df agrees with the file system, and fsck finds nothing', async () => {
    const deleted = async (): Promise<void> => {
      await waitFor('the trash to be empty', () => readdirSync(join(data, 'btrfs/trash')).length === 0);
      await waitFor('the kernel to have freed what was in it', () => disk.isCleaned());
    };
    const size = async (): Promise<number> =>
      (await callJson<DiskUsage>(engine.socketPath, 'GET', '/system/df')).DataRoot.Size;
    await deleted();
    const [usedBefore, sizeBefore] = [disk.dataBytes(), await size()];
    await shell('large', 'dd if=/dev/urandom of=/large bs=1M count=50 2>/dev/null');
    await engineOk(engine, ['commit', 'large', 'large:1']);
    // The difference that the commit was made of shares its blocks with the container.
    await deleted();
    const [usedAfter, sizeAfter] = [disk.dataBytes(), await size()];
    assertWithin(sizeAfter - sizeBefore, usedAfter - usedBefore, 0.01, 'a container and its commit');
    assert.deepEqual((await fsck()).findings, []);
  });
});

describe('selection', { skip: reason }, () => {
  const cleanup = new Cleanup();
  after(() => cleanup.run());

  test('data of a driver select it; those of another stay, and are told of', async () => {
    const disk = new BtrfsDisk();
    cleanup.add(async () => disk.remove());
    const root = join(disk.path, 'data');
    const start = (...args: string[]): Promise<Engine> =>
      Engine.start(engined({ args: ['--data-root', root, ...args] }));
    const driverOf = (engine: Engine): Promise<string> => engineOk(engine, ['info', '-f', '{{.Driver}}']);
    const use = async <T>(args: readonly string[], work: (engine: Engine) => Promise<T>): Promise<T> => {
      const engine = await start(...args);
      try {
        return await work(engine);
      } finally {
        await engine.close();
      }
    };
    await use(['--storage-driver', 'btrfs'], async (engine) => {
      await load(engine, archive);
      await engineOk(engine, ['create', '--name', 'of-btrfs', 'busybox:1']);
    });
    await use([], async (engine) => assert.equal(await driverOf(engine), 'btrfs'));
    await use(['--storage-driver', 'overlay2'], async (engine) => {
      assert.equal(await driverOf(engine), 'overlay2');
      assert.equal(await engineOk(engine, ['ps', '-aq']), '');
      assert.equal(await engineOk(engine, ['images', '-q']), '');
      await load(engine, archive);
      await engineOk(engine, ['create', '--name', 'of-overlay2', 'busybox:1']);
      assert.match(
        (await docker(engine, ['info'])).stderr,
        /also holds images and containers of the storage driver btrfs/,
      );
      const usage = await callJson<DiskUsage>(engine.socketPath, 'GET', '/system/df');
      assert.deepEqual(
        usage.DataRoot.OtherDrivers.map(({ Driver }) => Driver),
        ['btrfs'],
      );
      const report = await callJson<Fsck>(engine.socketPath, 'POST', '/engine/fsck');
      assert.deepEqual(report.findings, []);
      assert.deepEqual([...report.drivers].sort(), ['btrfs', 'overlay2']);
    });
    await assert.rejects(start(), /contains several valid graphdrivers: btrfs, overlay2; cleanup or explicitly choose/);
    await use(['--storage-driver', 'btrfs'], async (engine) => {
      assert.equal(await engineOk(engine, ['ps', '-a', '--format', '{{.Names}}']), 'of-btrfs');
      const output = await engineOk(engine, ['run', '--rm', '--network', 'none', 'busybox:1', 'cat', '/etc/new']);
      assert.equal(output, 'new');
    });
  });

  test('a file system that is no btrfs, and options of another driver, are refused, and nothing is made', async () => {
    const disk = new BtrfsDisk();
    cleanup.add(async () => disk.remove());
    const refused = async (root: string, ...args: string[]): Promise<string> => {
      mkdirSync(root, { recursive: true });
      const error = await Engine.start(engined({ args: ['--data-root', root, ...args] })).then(
        async (engine) => {
          await engine.close();
          return 'it started';
        },
        (thrown: unknown) => String(thrown),
      );
      assert.equal(existsSync(join(root, 'btrfs')), false);
      return error;
    };
    execFileSync('mount', ['-t', 'tmpfs', 'no-btrfs', disk.path]);
    cleanup.add(async () => void execFileSync('umount', ['-l', disk.path]));
    assert.match(
      await refused(join(disk.path, 'ram'), '--storage-driver', 'btrfs'),
      /prerequisites for driver not satisfied \(wrong filesystem\?\): .* is not on btrfs; mount one there/,
    );
    assert.match(
      await refused(join(disk.path, 'ram'), '--storage-opt', 'btrfs.min_space=1G'),
      /storage option btrfs\.min_space does not belong to storage driver overlay2/,
    );
  });
});
