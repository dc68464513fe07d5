/**
 * A daemon whose images and containers are snapshots of the supervisor: what clients see of it, what `ctr` sees, what
 * the figures of its disk are, and what becomes of snapshots and data that somebody else removes.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk } from '../support/cli.js';
import { assertWithin } from '../support/disk.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import {
  buildImage,
  buildIndex,
  buildLayer,
  busyboxEntries,
  generatedLayer,
  pushImage,
  pushManifest,
  sha256,
} from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { startRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';

interface DiskUsage {
  readonly LayersSize: number;
  readonly DataRoot: { readonly Size: number; readonly OtherDrivers: { readonly Driver: string }[] };
}
interface Fsck {
  readonly drivers: readonly string[];
  readonly findings: readonly unknown[];
}

const STORE = 'supervisor-snapshotter';
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

describe('with snapshots of the supervisor', () => {
  const cleanup = new Cleanup();
  let engine: Engine;
  const run = (...args: string[]): Promise<string> => engineOk(engine, ['run', '--network', 'none', ...args]);
  const fsck = (): Promise<Fsck> => callJson<Fsck>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
  const at = (path: string): string => join(engine.dir, 'data', STORE, path);
  const ctr = (...args: string[]): string =>
    execFileSync('ctr', ['--address', join(engine.dir, 'exec/supervisor/supervisor.sock'), '-n', 'engine', ...args], {
      encoding: 'utf8',
    });
  /** Lines of `ctr snapshots ls` by the names of the snapshots: their parents and kinds. */
  const snapshots = (): ReadonlyMap<string, readonly string[]> =>
    new Map(
      ctr('snapshots', '--snapshotter', 'overlayfs', 'ls')
        .split('\n')
        .slice(1)
        .filter((line) => line !== '')
        .map((line) => line.split(/\s+/).filter((word) => word !== ''))
        .map(([name = '', ...rest]) => [name, rest]),
    );

  /** Deletes all that nothing holds: the deletion of a lease with --sync waits for that. */
  const collect = (): void => {
    ctr('leases', 'create', '--id', 'any');
    ctr('leases', 'rm', '--sync', 'any');
  };

  before(async () => {
    engine = await Engine.start(engined({ args: ['--feature', STORE] }));
    cleanup.add(() => engine.close());
    await load(engine, archive);
  });
  after(() => cleanup.run());

  test('containers have the files of their image, and commit, diff, cp, export and build work', async () => {
    const change = 'cat /etc/new; ls /etc/gone 2>&1 | wc -l; rm /etc/old; echo x >/y';
    assert.equal(await run('--name', 'first', 'busybox:1', 'sh', '-c', change), 'new1');
    assert.deepEqual((await engineOk(engine, ['diff', 'first'])).split('\n').sort(), ['A /y', 'C /etc', 'D /etc/old']);
    await engineOk(engine, ['commit', 'first', 'committed:1']);
    assert.equal(await run('--rm', 'committed:1', 'sh', '-c', 'cat /y; [ ! -e /etc/old ]'), 'x');
    const copied = join(engine.dir, 'y');
    await engineOk(engine, ['cp', 'first:/y', copied]);
    assert.equal(readFileSync(copied, 'utf8'), 'x\n');
    assert.ok((await call(engine.socketPath, 'GET', '/containers/first/export')).body.includes('etc/new'));
    const dockerfile = 'FROM busybox:1\nRUN echo built >/built && rm /etc/new\nCOPY --from=committed:1 /y /copied\n';
    await dockerOk(engine, ['build', '-q', '-t', 'built:1', '-'], { input: dockerfile });
    assert.equal(
      await run('--rm', 'built:1', 'sh', '-c', 'cat /built /copied; ls /etc/new 2>/dev/null || true'),
      'built\nx',
    );
  });

  test('info and inspect tell of the snapshotter where clients look', async () => {
    const { Driver, DriverStatus } = await callJson<Record<string, unknown>>(engine.socketPath, 'GET', '/info');
    assert.equal(Driver, 'overlayfs');
    assert.deepEqual(DriverStatus, [['driver-type', 'io.containerd.snapshotter.v1']]);
    const image = JSON.parse(await engineOk(engine, ['image', 'inspect', 'busybox:1']))[0];
    assert.deepEqual(image.GraphDriver, { Name: 'overlayfs', Data: null });
    const container = JSON.parse(await engineOk(engine, ['inspect', 'first']))[0];
    assert.equal(container.Driver, 'overlayfs');
    assert.equal(container.GraphDriver.Data, null);
  });

  test('layers are snapshots with the names of their chain IDs, and containers stand on them', async () => {
    const { RootFS } = JSON.parse(await engineOk(engine, ['image', 'inspect', 'busybox:1']))[0];
    const found = snapshots();
    const [base = '', second = ''] = RootFS.Layers as string[];
    assert.deepEqual(found.get(base), ['Committed']);
    const top = [...found].find(([, rest]) => rest[0] === base && rest[1] === 'Committed');
    assert.ok(top && second !== '', 'the second layer stands on the first');
    const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', 'first']);
    assert.deepEqual(found.get(id), [top[0], 'Active']);
  });

  test('the supervisor collects what was removed, and nothing else, also after a kill', async () => {
    await run('--name', 'going', 'busybox:1', 'true');
    const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', 'going']);
    const containers = (await engineOk(engine, ['ps', '-aq', '--no-trunc'])).split('\n');
    // Earlier containers are removed after their removal was answered.
    const before = await waitFor('what was removed to go', () => {
      const found = snapshots();
      const active = [...found].filter(([, rest]) => rest.at(-1) === 'Active').map(([name]) => name);
      return active.every((name) => containers.includes(name)) && found;
    });
    collect();
    assert.deepEqual([...snapshots().keys()].sort(), [...before.keys()].sort());
    await engine.stop('SIGKILL');
    await engine.start();
    collect();
    assert.equal(await engineOk(engine, ['start', '-a', 'going']), '');
    await engineOk(engine, ['rm', 'going']);
    await engineOk(engine, ['rmi', 'built:1']);
    await waitFor('the snapshot to go', () => !snapshots().has(id));
    assert.ok(snapshots().size < before.size);
    assert.equal(await run('--rm', 'committed:1', 'cat', '/y'), 'x');
  });

  test('a pulled image is kept as the registry has it, pushed so, and goes with its names', async () => {
    const [source, target] = await Promise.all([startRegistry(), startRegistry()]);
    cleanup.add(() => source.stop());
    cleanup.add(() => target.stop());
    const layers = [
      generatedLayer({ root: 'data', bytes: 3 << 20, files: 9, seed: 7 }),
      buildLayer([{ path: 'small' }]),
    ];
    const image = buildImage({ layers, format: 'oci' });
    const other = buildImage({ layers: [buildLayer([{ path: 'other' }])], format: 'oci', architecture: 'arm' });
    const index = buildIndex([other, image], 'oci');
    for (const one of [other, image]) await pushImage(source.url, 'multi', one.platform.architecture, one);
    await pushManifest(source.url, 'multi', 'latest', index);
    const blobs = (): string[] => ctr('content', 'ls', '-q').split('\n').filter(Boolean).sort();
    // Images that were made here are kept, too.
    const before = new Set(blobs());
    const content = (): string[] => blobs().filter((digest) => !before.has(digest));
    await pullOk(engine, `${source.host}/multi:latest`);
    const wanted = [index, image, ...layers].map(({ digest }) => digest);
    const all = [...wanted, sha256(image.config)].sort();
    assert.deepEqual(content(), all);
    await engine.stop('SIGKILL');
    await engine.start();
    collect();
    assert.deepEqual(content(), all);
    const pushed = `${target.host}/a/b:1`;
    const [shown] = JSON.parse(await engineOk(engine, ['image', 'inspect', index.digest.slice(7, 19)]));
    const { Id, RepoDigests, Size } = shown;
    assert.deepEqual([Id, RepoDigests], [index.digest, [`${source.host}/multi@${index.digest}`]]);
    const bytes = [index.manifest, image.manifest, image.config, ...layers.map(({ blob }) => blob)];
    assert.equal(Size, Buffer.concat(bytes).length);
    const container = await engineOk(engine, ['create', index.digest.slice(7, 19), '/none']);
    assert.equal(await engineOk(engine, ['inspect', '-f', '{{.Image}}', container]), index.digest);
    assert.match((await attempt(engine, ['rmi', Id.slice(7, 19)])).stderr, /is being used by stopped container/);
    await engineOk(engine, ['rm', container]);
    await engineOk(engine, ['tag', `${source.host}/multi`, pushed]);
    const alone = await engineOk(engine, ['push', pushed]);
    assert.match(alone, new RegExp(`1: digest: ${image.digest}`));
    // The CLI prints this for an index of which not all is here.
    assert.match(alone, /only the available single-platform image was pushed/);
    const answer = await fetch(`${target.url}/v2/a/b/manifests/1`, { headers: { accept: image.mediaType } });
    assert.deepEqual(Buffer.from(await answer.arrayBuffer()), image.manifest);
    await engineOk(engine, ['rmi', `${source.host}/multi`]);
    collect();
    assert.deepEqual(content(), all);
    // With the image of the other platform all of the index is here.
    await engineOk(engine, ['pull', '-q', '--platform', 'linux/arm', `${source.host}/multi`]);
    assert.doesNotMatch(await engineOk(engine, ['push', pushed]), /only the available/);
    const whole = await fetch(`${target.url}/v2/a/b/manifests/1`, { headers: { accept: index.mediaType } });
    assert.deepEqual(Buffer.from(await whole.arrayBuffer()), index.manifest);
    const armed = await fetch(`${target.url}/v2/a/b/manifests/${other.digest}`, {
      headers: { accept: other.mediaType },
    });
    assert.equal(armed.status, 200);
    const { body: saved } = await call(engine.socketPath, 'GET', `/images/get?names=${source.host}/multi`);
    await engineOk(engine, ['rmi', `${source.host}/multi`]);
    await engineOk(engine, ['rmi', pushed]);
    await waitFor('the content to go', () => content().length === 0);
    // The archive has the index and both images.
    assert.equal((await load(engine, saved)).error, undefined);
    assert.equal(await engineOk(engine, ['images', '-q', '--no-trunc', `${source.host}/multi`]), index.digest);
    await engineOk(engine, ['rmi', index.digest]);
    assert.deepEqual((await fsck()).findings, []);
  });

  test('a size is refused, and leaves nothing', async () => {
    const before = readdirSync(at('writable'));
    const { stderr } = await attempt(engine, ['create', '--storage-opt', 'size=1G', 'busybox:1']);
    assert.match(stderr, /--storage-opt size is not supported by the snapshotter overlayfs/);
    assert.deepEqual(readdirSync(at('writable')), before);
  });

  test('df agrees with the disk, and fsck finds nothing', async () => {
    await run('--name', 'large', 'busybox:1', 'dd', 'if=/dev/urandom', 'of=/large', 'bs=1M', 'count=20');
    await engineOk(engine, ['commit', 'large', 'large:1']);
    await waitFor('the trash to be empty', () => readdirSync(at('trash')).length === 0);
    const data = join(engine.dir, 'data');
    const usage = await callJson<DiskUsage>(engine.socketPath, 'GET', '/system/df');
    const du = Number(execFileSync('du', ['-sxB1', data], { encoding: 'utf8' }).split('\t', 1)[0]);
    assertWithin(usage.DataRoot.Size, du, 0.01, 'the data root');
    assert.ok(usage.LayersSize > 20 << 20, `${usage.LayersSize} bytes of layers`);
    const [large] = await callJson<{ readonly SizeRw: number; readonly Names: string[] }[]>(
      engine.socketPath,
      'GET',
      '/containers/json?all=1&size=1&filters={"name":["large"]}',
    );
    assert.ok((large?.SizeRw ?? 0) >= 20 << 20);
    assert.deepEqual((await fsck()).findings, []);
    await engineOk(engine, ['rm', 'large']);
    await engineOk(engine, ['rmi', 'large:1']);
  });

  test('a container whose snapshot somebody removed says so and can be removed', async () => {
    await run('--name', 'bereft', 'busybox:1', 'true');
    const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', 'bereft']);
    ctr('snapshots', '--snapshotter', 'overlayfs', 'rm', id);
    assert.match((await docker(engine, ['start', 'bereft'])).stderr, /the snapshot .* of the container was removed/);
    await engineOk(engine, ['rm', 'bereft']);
  });

  test('a start with another snapshotter, or with a supervisor that has lost the lease, gives nothing up', async () => {
    await engine.stop();
    const lease = readlinkSync(at('lease'));
    const data = join(engine.dir, 'data');
    // A start that ends before its containers are known leaves its bridge to the next one.
    const start = (...args: string[]): Promise<unknown> =>
      Engine.start(engined({ args: ['--data-root', data, '--bridge', 'none', '--feature', STORE, ...args] }));
    await assert.rejects(
      Engine.start(engined({ args: ['--bridge', 'none', '--feature', STORE, '--storage-driver', 'overlay2'] })),
      /snapshotter not loaded: overlay2: the supervisor has no such snapshotter/,
    );
    await assert.rejects(
      start('--storage-driver', 'native'),
      /has images and containers of the snapshotter overlayfs: name that one/,
    );
    await assert.rejects(
      start('--supervisor-namespace', 'other'),
      (error: Error) =>
        error.message.includes(`the supervisor does not know the lease ${lease}`) &&
        error.message.includes('supervisor-namespace'),
    );
    assert.ok(existsSync(at('image')));
    await engine.start();
    assert.equal(await run('--rm', 'busybox:1', 'cat', '/etc/new'), 'new');
  });

  test('a layer whose snapshot is gone goes with its images, and the others stay', async () => {
    await dockerOk(engine, ['build', '-q', '-t', 'other:1', '-'], {
      input: 'FROM scratch\nENV a=b\nCOPY --from=busybox:1 /etc/new /x\n',
    });
    const { RootFS } = JSON.parse(await engineOk(engine, ['image', 'inspect', 'other:1']))[0];
    ctr('snapshots', '--snapshotter', 'overlayfs', 'rm', RootFS.Layers[0]);
    await engine.stop();
    await engine.start();
    assert.match(engine.log, /whose snapshot sha256:[0-9a-f]+ was removed from the supervisor/);
    assert.doesNotMatch(await engineOk(engine, ['images']), /other/);
    assert.equal(await run('--rm', 'busybox:1', 'cat', '/etc/new'), 'new');
    assert.deepEqual((await fsck()).findings, []);
  });

  test('a storage driver leaves the snapshots alone, and tells of them', async () => {
    await engine.stop();
    const other = await Engine.start(engined({ args: ['--data-root', join(engine.dir, 'data')] }));
    try {
      assert.equal(await engineOk(other, ['info', '-f', '{{.Driver}}']), 'overlay2');
      assert.equal(await engineOk(other, ['images', '-q']), '');
      assert.match((await docker(other, ['info'])).stderr, /start the daemon with --feature supervisor-snapshotter/);
      const usage = await callJson<DiskUsage>(other.socketPath, 'GET', '/system/df');
      assert.deepEqual(
        usage.DataRoot.OtherDrivers.map(({ Driver }) => Driver),
        [STORE],
      );
    } finally {
      await other.close();
    }
  });

  test('a data root may be moved: the files of the snapshots are found again, and the old ones stay', async () => {
    const copy = join(engine.dir, 'copy');
    execFileSync('cp', ['-a', join(engine.dir, 'data'), copy]);
    const other = await Engine.start(engined({ args: ['--data-root', copy, '--feature', STORE] }));
    try {
      const output = await engineOk(other, ['run', '--rm', '--network', 'none', 'busybox:1', 'cat', '/etc/new']);
      assert.equal(output, 'new');
      assert.equal(await engineOk(other, ['start', '-a', 'first']), 'new1');
      for (const name of readdirSync(join(copy, STORE, 'layers')))
        assert.ok(readlinkSync(join(copy, STORE, 'layers', name, 'files')).startsWith(copy));
    } finally {
      await other.close();
    }
    await engine.start();
    assert.equal(await run('--rm', 'busybox:1', 'cat', '/etc/new'), 'new');
  });
});
