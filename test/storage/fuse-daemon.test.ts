/**
 * A daemon with fuse-overlayfs: what clients see of the driver, and its processes, one for each mount: they outlive the
 * daemon, are taken over, are noticed when somebody kills them, and go with their containers.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { dockerOk } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, busyboxEntries } from '../support/image-builder.js';
import { processesOf } from '../support/leftovers.js';
import { waitFor } from '../support/wait.js';

interface Fsck {
  readonly findings: readonly unknown[];
}

const DRIVER = 'fuse-overlayfs';
const archive = archiveOf(
  oldArchive(
    buildImage({
      layers: [
        buildLayer([
          ...busyboxEntries(),
          { path: 'etc/old', content: 'old' },
          { path: 'etc/gone', content: 'gone' },
          { path: 'var/cache/big', content: 'big' },
        ]),
        buildLayer([{ path: 'etc/.wh.gone' }, { path: 'etc/new', content: 'new' }]),
      ],
      config: { Cmd: ['sh'] },
    }),
    ['busybox:1'],
  ),
);

describe('with fuse-overlayfs', () => {
  const cleanup = new Cleanup();
  let engine: Engine;
  const run = (...args: string[]): Promise<string> => engineOk(engine, ['run', '--network', 'none', ...args]);
  const fsck = (): Promise<Fsck> => callJson<Fsck>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1');
  const servers = (): { readonly pid: number; readonly command: string }[] =>
    processesOf(engine.dir).filter(({ command }) => command.startsWith(`${DRIVER} `));
  /** The process of a container that runs. */
  const serverOf = async (name: string): Promise<number> => {
    const id = await engineOk(engine, ['inspect', '-f', '{{.Id}}', name]);
    const found = servers().filter(({ command }) => command.includes(id));
    assert.equal(found.length, 1, name);
    return found[0]?.pid ?? 0;
  };

  before(async () => {
    engine = await Engine.start(engined({ args: ['--storage-driver', DRIVER, '--live-restore'] }));
    cleanup.add(() => engine.close());
    cleanup.add(async () => {
      const ids = (await engineOk(engine, ['ps', '-aq'])).split('\n').filter((id) => id !== '');
      if (ids.length > 0) await engineOk(engine, ['rm', '-f', ...ids]);
    });
    await load(engine, archive);
  });
  after(() => cleanup.run());

  test('containers have the files of their image, and commit, diff, cp, export and build work', async () => {
    const change =
      'cat /etc/new; ls /etc/gone 2>&1 | wc -l; rm /etc/old; rm -r /var/cache; mkdir /var/cache; echo x >/y';
    assert.equal(await run('--name', 'first', 'busybox:1', 'sh', '-c', change), 'new1');
    assert.deepEqual((await engineOk(engine, ['diff', 'first'])).split('\n').sort(), [
      'A /y',
      'C /etc',
      'C /var',
      'D /etc/old',
      'D /var/cache',
    ]);
    await engineOk(engine, ['commit', 'first', 'committed:1']);
    assert.equal(await run('--rm', 'committed:1', 'sh', '-c', 'cat /y; ls -A /var/cache; [ ! -e /etc/old ]'), 'x');
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
    assert.deepEqual((await fsck()).findings, []);
  });

  test('info names the driver, the program and what it stands on', async () => {
    const json = await callJson(engine.socketPath, 'GET', '/info');
    const { Driver, DriverStatus } = json as { Driver: string; DriverStatus: [string, string][] };
    assert.equal(Driver, DRIVER);
    const rows = new Map(DriverStatus);
    assert.match(rows.get('fuse-overlayfs Version') ?? '', /^\d+\.\d+/);
    assert.match(rows.get('FUSE Library Version') ?? '', /^3\.\d+/);
    assert.notEqual(rows.get('Backing Filesystem') ?? 'unknown', 'unknown');
  });

  test('a size is refused, and leaves nothing', async () => {
    const place = join(engine.dir, 'data', DRIVER, 'writable');
    const before = readdirSync(place);
    const { stderr } = await attempt(engine, ['create', '--storage-opt', 'size=1G', 'busybox:1']);
    assert.match(stderr, /--storage-opt size is not supported by the storage driver fuse-overlayfs/);
    assert.deepEqual(readdirSync(place), before);
  });

  test('a process outlives the daemon, is taken over, and goes with its container', async () => {
    await run('-d', '--name', 'kept', 'busybox:1', 'sh', '-c', 'while ! [ -e /end ]; do sleep 0.05; done; cat /word');
    const pid = await serverOf('kept');
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      await engine.stop(signal);
      assert.equal(await dockerProcess(pid), DRIVER);
      await engine.start();
      assert.equal(await serverOf('kept'), pid);
      await engineOk(engine, ['exec', 'kept', 'sh', '-c', `echo ${signal} >>/word`]);
    }
    await engineOk(engine, ['exec', 'kept', 'touch', '/end']);
    await engineOk(engine, ['wait', 'kept']);
    assert.equal(await engineOk(engine, ['logs', 'kept']), 'SIGTERM\nSIGKILL');
    await waitFor('the process to go', () => servers().length === 0);
    await engineOk(engine, ['rm', 'kept']);
  });

  test('a process that somebody killed is told of, and the next start of the container mounts afresh', async () => {
    await run('-d', '--name', 'hit', 'busybox:1', 'sh', '-c', 'echo x >>/kept; exec sleep 1000');
    await waitFor('the file', async () => (await attempt(engine, ['exec', 'hit', 'cat', '/kept'])).stdout === 'x\n');
    process.kill(await serverOf('hit'), 'SIGKILL');
    await waitFor('the log to tell', () => /fuse-overlayfs of a container was ended/.test(engine.log));
    assert.notEqual((await attempt(engine, ['exec', 'hit', 'true'])).status, 0);
    await engineOk(engine, ['restart', '-t', '0', 'hit']);
    await waitFor(
      'both lines',
      async () => (await attempt(engine, ['exec', 'hit', 'cat', '/kept'])).stdout === 'x\nx\n',
    );
    assert.deepEqual((await fsck()).findings, []);
  });

  test('a process that was killed while no daemon ran is told of, and the container starts again', async () => {
    const pid = await serverOf('hit');
    await engine.stop('SIGKILL');
    process.kill(pid, 'SIGKILL');
    await engine.start();
    assert.match(engine.log, /fuse-overlayfs of a container has ended/);
    await engineOk(engine, ['restart', '-t', '0', 'hit']);
    await waitFor(
      'three lines',
      async () => (await attempt(engine, ['exec', 'hit', 'cat', '/kept'])).stdout === 'x\nx\nx\n',
    );
    await engineOk(engine, ['rm', '-f', 'hit']);
    assert.deepEqual(servers(), []);
    assert.deepEqual((await fsck()).findings, []);
  });
});

test('without the program the driver is refused with its name and package, and nothing is made', async () => {
  const bin = mkdtempSync(join(tmpdir(), 'no-fuse-'));
  const programs = new Map<string, string>();
  // The first directory that has a name counts.
  for (const directory of (process.env['PATH'] ?? '').split(delimiter).toReversed())
    for (const name of readable(directory)) programs.set(name, directory);
  programs.delete(DRIVER);
  for (const [name, directory] of programs) symlinkSync(join(directory, name), join(bin, name));
  try {
    await assert.rejects(
      Engine.start(engined({ args: ['--storage-driver', DRIVER], env: { PATH: bin } })),
      /the program fuse-overlayfs is not installed \(Debian package fuse-overlayfs\)/,
    );
  } finally {
    rmSync(bin, { recursive: true });
  }
});

async function dockerProcess(pid: number): Promise<string> {
  return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
}

function readable(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
