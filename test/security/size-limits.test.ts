/** Sizes of containers: kept by XFS with project quotas, refused where nobody would keep them. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { joinProject } from '../../src/sys/mount/project-quota.js';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, busyboxEntries } from '../support/image-builder.js';

const cleanup = new Cleanup();
let dir: string;
const image = buildImage({ layers: [buildLayer(busyboxEntries())], config: { Cmd: ['sh'] } });
const archive = archiveOf(oldArchive(image, ['busybox:1']));

before(() => {
  dir = mkdtempSync(join(tmpdir(), 'size-limits-'));
  cleanup.add(async () => rmSync(dir, { recursive: true, force: true }));
});
after(() => cleanup.run());

/** Where this machine cannot mount images of file systems, undefined. */
function mountXfs(name: string, options: string): string | undefined {
  const [file, at] = [join(dir, `${name}.img`), join(dir, name)];
  execFileSync('truncate', ['-s', '512M', file]);
  execFileSync('mkdir', [at]);
  try {
    execFileSync('mkfs.xfs', ['-q', file], { stdio: 'pipe' });
    execFileSync('mount', ['-o', `loop,${options}`, file, at], { stdio: 'pipe' });
  } catch {
    return undefined;
  }
  cleanup.add(async () => void execFileSync('umount', ['-l', at]));
  return at;
}

const refusal = (root: string, size: string): Promise<string> =>
  Engine.start(engined({ args: ['--data-root', join(root, 'data'), '--storage-opt', `overlay2.size=${size}`] })).then(
    async (engine) => {
      await engine.close();
      return 'it started';
    },
    (error: unknown) => String(error),
  );

/** Builds a layer with a file. Returns the projects of this file in all layers: none goes on counting for a step. */
async function projectsOfBuild(engine: Engine, dataRoot: string): Promise<string[]> {
  const context = join(dir, 'context');
  mkdirSync(context);
  writeFileSync(join(context, 'Dockerfile'), 'FROM busybox:1\nCOPY Dockerfile /counted\n');
  await engineOk(engine, ['build', '-q', context]);
  const found = execFileSync('find', [join(dataRoot, 'overlay2/layers'), '-name', 'counted'], { encoding: 'utf8' });
  return found
    .trim()
    .split('\n')
    .map(
      (path) => /projid = (\d+)/.exec(execFileSync('xfs_io', ['-c', 'lsproj', path], { encoding: 'utf8' }))?.[1] ?? '',
    );
}

describe('without quotas', () => {
  test('a size for all containers stops the start', async () => {
    assert.match(
      await refusal(dir, '1G'),
      /Storage Option overlay2\.size only supported for backingFS XFS\. Found \w+/,
    );
  });

  test('a size for one container is refused, as an unknown option is, and nothing is left', async () => {
    const engine = await Engine.start(engined());
    try {
      await load(engine, archive);
      const create = (option: string): ReturnType<typeof docker> =>
        docker(engine, ['create', '--storage-opt', option, 'busybox:1']);
      assert.match(
        (await create('size=1G')).stderr,
        /--storage-opt is supported only for overlay over xfs with 'pquota' mount option/,
      );
      assert.match((await create('colour=green')).stderr, /Unknown option colour/);
      assert.equal(await engineOk(engine, ['ps', '-aq']), '');
    } finally {
      await engine.close();
    }
  });
});

describe('on XFS', () => {
  test('without pquota the start is refused', async (t) => {
    const root = mountXfs('plain', 'noquota');
    if (root === undefined) return t.skip('no loop devices');
    // A file that is made in a directory is of its project, as xfs_io sees it, too.
    mkdirSync(join(root, 'project'));
    const fd = openSync(join(root, 'project'), 'r');
    joinProject(fd, 4711);
    closeSync(fd);
    mkdirSync(join(root, 'project/below'));
    assert.match(
      execFileSync('xfs_io', ['-c', 'lsproj', join(root, 'project/below')], { encoding: 'utf8' }),
      /projid = 4711/,
    );
    return assert.match(
      await refusal(root, '1G'),
      /overlay2\.size not supported\. Filesystem does not support Project Quota/,
    );
  });

  test('with pquota containers get what they were given, and no more, also after a restart', async (t) => {
    const root = mountXfs('quotas', 'pquota');
    if (root === undefined) return t.skip('the kernel has no XFS quotas, or no loop devices');
    assert.match(await refusal(root, '1T'), /size 1T is larger than the file system/);
    const engine = await Engine.start(
      engined({ args: ['--data-root', join(root, 'data'), '--storage-opt', 'overlay2.size=16M'] }),
    );
    try {
      await load(engine, archive);
      const write = 'dd if=/dev/zero of=/big bs=1M count=$0 2>&1 | tail -1; wc -c </big';
      const run = (name: string, mib: number, ...options: string[]): Promise<string> =>
        engineOk(engine, [
          'run',
          '--name',
          name,
          '--network',
          'none',
          ...options,
          'busybox:1',
          'sh',
          '-c',
          write,
          String(mib),
        ]);
      const bytes = (output: string): number => Number(output.split('\n').at(-1));
      assert.equal(bytes(await run('fits', 8)), 8 << 20);
      assert.ok(bytes(await run('full', 32)) <= 16 << 20);
      assert.equal(bytes(await run('given', 32, '--storage-opt', 'size=64M')), 32 << 20);
      assert.match(
        (await docker(engine, ['create', '--storage-opt', 'size=lots', 'busybox:1'])).stderr,
        /invalid size: 'lots'/,
      );
      await engine.stop('SIGKILL');
      await engine.start();
      assert.ok(bytes(await run('later', 32)) <= 16 << 20);
      assert.deepEqual(await projectsOfBuild(engine, join(root, 'data')), ['0']);
      await engineOk(engine, ['start', '-a', 'full']);
      assert.ok(Number(await engineOk(engine, ['inspect', '--size', '--format', '{{.SizeRw}}', 'full'])) <= 16 << 20);
    } finally {
      await engine.close();
    }
    return undefined;
  });
});
