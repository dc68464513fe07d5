/** A disk without a byte left: what is refused has not happened, the daemon starts, and the operator can make room. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statfsSync, statSync } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Reserve } from '../../src/sys/files/reserve.js';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { buildxPlugins } from '../support/dockerd.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, type Reply } from '../support/http.js';
import { SmallDisk } from '../support/small-disk.js';
import { mountsBelow } from '../support/leftovers.js';
import { buildImage, generatedLayer, pushImage, tarOf } from '../support/image-builder.js';
import { pull, pullOk } from '../support/pulls.js';
import { startRegistry } from '../support/registry.js';
import { waitFor } from '../support/wait.js';

/** More than there are pieces in the reserve. */
const TAGS = 40;

const cleanup = new Cleanup();
let disk: SmallDisk;
let engine: Engine;
let image: string;

before(async () => {
  disk = SmallDisk.make(cleanup, 64);
  ({ engine, image } = await startEngineWithRegistry(
    cleanup,
    engined({ args: ['--data-root', join(disk.path, 'data'), '--ip-forward-no-drop'] }),
  ));
});
after(() => cleanup.run());

const post = (path: string, json?: unknown): Promise<Reply> =>
  call(engine.socketPath, 'POST', path, json === undefined ? {} : { json });
const names = async (): Promise<string[]> =>
  (await callJson<{ Names: string[] }[]>(engine.socketPath, 'GET', '/containers/json?all=1'))
    .flatMap(({ Names }) => Names)
    .sort();

/** A request that must fail because the disk is full. */
async function refused(request: () => Promise<Reply>): Promise<void> {
  disk.fill();
  const { status, text } = await request();
  assert.deepEqual([status, /ENOSPC|no space left/i.test(text)], [500, true], text);
}

test('what cannot be written has not happened: renames, limits, tags, networks, volumes, containers', async () => {
  await engineOk(engine, ['run', '-d', '--name', 'up', '--memory', '64m', image, 'sleep', '6000']);
  await engineOk(engine, ['create', '--name', 'rests', image, 'true']);
  const limits = (): Promise<string> =>
    engineOk(engine, [
      'exec',
      'up',
      'sh',
      '-c',
      'cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max',
    ]);
  const before = await limits();
  await refused(() => post('/containers/up/rename?name=other'));
  await refused(() => post('/containers/rests/rename?name=other'));
  await refused(() => post('/containers/up/update', { Memory: 128 << 20, MemorySwap: 256 << 20 }));
  await refused(() => post(`/images/${image}/tag?repo=other&tag=1`));
  await refused(() => post('/networks/create', { Name: 'other' }));
  await refused(() => post('/volumes/create', { Name: 'other' }));
  await refused(() => post('/containers/create?name=other', { Image: image }));
  await refused(() => post('/containers/rests/start'));
  const check = async (): Promise<void> => {
    assert.deepEqual(await names(), ['/rests', '/up']);
    assert.notEqual((await attempt(engine, ['inspect', 'other'])).status, 0);
    assert.equal(
      (await callJson<{ HostConfig: { Memory: number } }>(engine.socketPath, 'GET', '/containers/up/json')).HostConfig
        .Memory,
      64 << 20,
    );
  };
  await check();
  disk.free();
  assert.equal(await limits(), before);
  // The name belongs to nobody: the next one can have it, and then nobody else.
  await engineOk(engine, ['create', '--name', 'other', image, 'true']);
  assert.equal((await post('/containers/rests/rename?name=other')).status, 409);
  await engineOk(engine, ['rm', 'other']);
  assert.equal(await engine.stop(), 0);
  await engine.start();
  await check();
  await engineOk(engine, ['rm', '-f', 'up', 'rests']);
});

const freeBytes = (): number => {
  const { bavail, bsize } = statfsSync(disk.path);
  return bavail * bsize;
};

test('a removal and a prune answer when the space is free', async () => {
  const write = 'head -c 8388608 /dev/zero > /file';
  for (const name of ['one', 'two']) await engineOk(engine, ['run', '--name', name, image, 'sh', '-c', write]);
  await engineOk(engine, ['commit', 'one', 'heavy:1']);
  const others = freeBytes();
  for (const order of ['rm one', 'rm two', 'rmi heavy:1']) {
    disk.fill();
    await engineOk(engine, order.split(' '));
    assert.ok(freeBytes() > 7 << 20, `after ${order} ${freeBytes()} bytes are free`);
  }
  disk.free();
  assert.ok(freeBytes() > others + (20 << 20), `${freeBytes()} bytes are free, ${others} were`);
  const buildx = buildxHere();
  if (buildx === undefined) return;
  await buildx.ok(['build', '--output=type=cacheonly', '-'], { input: `FROM ${image}\nRUN ${write}\n` });
  disk.fill();
  assert.equal((await post('/build/prune?all=1')).status, 200);
  assert.ok(freeBytes() > 7 << 20, `after the prune ${freeBytes()} bytes are free`);
  disk.free();
});

/** Returns a client of its own, if there is buildx. */
function buildxHere(): Buildx | undefined {
  if (buildxPlugins() === undefined) return undefined;
  const client = mkdtempSync(join(tmpdir(), 'fills-'));
  cleanup.add(async () => rmSync(client, { recursive: true, force: true }));
  return new Buildx(client, engine.host);
}

test('a RUN that fills the disk fails alone, by both doors, and gives the disk back', async () => {
  const dockerfile = `FROM ${image}\nRUN cat /dev/zero > /fill\n`;
  const before = freeBytes();
  const isGivenBack = async (): Promise<void> => {
    await waitFor(
      () => `${before} bytes to be free, now ${freeBytes()}`,
      () => freeBytes() > before - (4 << 20),
    );
    assert.deepEqual(await names(), []);
    assert.equal(await engineOk(engine, ['run', '--rm', image, 'echo', 'still here']), 'still here');
  };
  const { text } = await call(engine.socketPath, 'POST', '/build?forcerm=1', {
    body: tarOf([{ path: 'Dockerfile', content: dockerfile }]),
    headers: { 'Content-Type': 'application/x-tar' },
  });
  assert.match(text, /No space left on device/);
  assert.match(text, /"errorDetail":\{"code":1,"message":"The command .* returned a non-zero code: 1"\}/);
  await isGivenBack();
  const buildx = buildxHere();
  if (buildx === undefined) return;
  const { status, stderr } = await buildx.run(['build', '-'], { input: dockerfile });
  assert.equal(status, 1);
  assert.match(stderr, /No space left on device/);
  assert.match(stderr, /did not complete successfully: exit code: 1$/m);
  await isGivenBack();
  // The cache keeps the files of the base image, also when that is removed.
  assert.equal((await post('/build/prune?all=1')).status, 200);
});

test('an end is on disk whatever is left, the daemon starts, and everything can be removed', async () => {
  await engineOk(engine, ['network', 'create', 'net']);
  await engineOk(engine, ['volume', 'create', 'vol']);
  await engineOk(engine, ['tag', image, 'second:1']);
  const id = await engineOk(engine, [
    'run',
    '-d',
    '--name',
    'up',
    '--init=false',
    image,
    'sh',
    '-c',
    'trap "exit 7" TERM; sleep 1000 & wait',
  ]);
  disk.fill();
  await engineOk(engine, ['stop', 'up']);
  const exitCode = async (): Promise<number> =>
    (await callJson<{ State: { ExitCode: number } }>(engine.socketPath, 'GET', `/containers/${id}/json`)).State
      .ExitCode;
  assert.equal(await exitCode(), 7);
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    disk.fill();
    await engine.stop(signal);
    disk.fill();
    await engine.start();
    assert.equal(await exitCode(), 7);
  }
  assert.match(engine.log, /the disk of the data root is full/);
  // Each removal of a name needs room to be written down and gives none, and others take what is free at once.
  disk.free();
  for (let tag = 1; tag <= TAGS; tag++)
    assert.equal((await post(`/images/${image}/tag?repo=many&tag=${tag}`)).status, 201);
  for (let tag = 1; tag <= TAGS; tag++) {
    disk.fill();
    await engineOk(engine, ['rmi', `many:${tag}`]);
  }
  disk.fill();
  await engineOk(engine, ['rmi', 'second:1']);
  await engineOk(engine, ['network', 'rm', 'net']);
  await engineOk(engine, ['volume', 'rm', 'vol']);
  await engineOk(engine, ['container', 'prune', '-f']);
  await engineOk(engine, ['image', 'prune', '-a', '-f']);
  assert.deepEqual(
    [await names(), await engineOk(engine, ['images', '-q']), await engineOk(engine, ['volume', 'ls', '-q'])],
    [[], '', ''],
  );
  // The space that removals gave back is enough to work again.
  await engineOk(engine, ['volume', 'create', 'vol']);
  await engineOk(engine, ['volume', 'rm', 'vol']);
  disk.free();
});

test('the reserve lasts for any number of removals, takes back its space, and gives up without its file', async () => {
  const full = SmallDisk.make(cleanup, 16);
  const reserve = new Reserve(full.path);
  const [path, record] = [join(full.path, 'reserve'), join(full.path, 'record')];
  const whole = 2 << 20;
  await reserve.open();
  await reserve.close();
  assert.equal(statSync(path).size, whole);
  const write = (content: string) => async (): Promise<void> => {
    await writeFile(`${record}.tmp`, content);
    await rename(`${record}.tmp`, record);
  };
  for (let i = 0; i < 100; i++) {
    full.fill();
    await reserve.urgent(write(`${i}`.repeat(5000)));
  }
  assert.ok(statSync(path).size > whole / 2, `${statSync(path).size} bytes are left`);
  full.free();
  await reserve.close();
  assert.equal(statSync(path).size, whole);
  full.fill();
  rmSync(path);
  full.fill();
  await assert.rejects(reserve.urgent(write('x'.repeat(100_000))), /ENOSPC/);
});

/** The engine with its data on a file system of a few megabytes. */
function onSmallDisk(kind: EngineKind, megabytes: number): EngineKind {
  return {
    ...kind,
    command(dir, socketPath) {
      const data = join(dir, 'data');
      mkdirSync(data, { recursive: true });
      if (!mountsBelow(dir).includes(data))
        execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'small', data]);
      return kind.command(dir, socketPath);
    },
  };
}

test('a full disk: the pull fails and says why, what there was stays, and there is room again', async () => {
  const small = await Engine.start(onSmallDisk(engined({ args: ['--max-download-attempts', '1'] }), 32));
  try {
    await pullOk(small, image);
    const big = await startRegistry();
    try {
      await pushImage(
        big.url,
        'too/big',
        '1',
        buildImage({ layers: [generatedLayer({ root: 'srv', bytes: 40_000_000, files: 100, seed: 9 })] }),
      );
      for (let attempt = 0; attempt < 2; attempt++) {
        const { error } = await pull(small, `${big.host}/too/big:1`);
        assert.match(error ?? '', /no space left on device/i);
      }
    } finally {
      await big.stop();
    }
    const images = await callJson<{ RepoTags: string[] }[]>(small.socketPath, 'GET', '/images/json?all=1');
    assert.deepEqual(
      images.flatMap(({ RepoTags }) => RepoTags),
      [image],
    );
    assert.equal(await engineOk(small, ['run', '--rm', image, 'echo', 'still here']), 'still here');
    await small.stop();
    execFileSync('umount', [join(small.dir, 'data')]);
    await small.close();
  } finally {
    await small.discard();
  }
});
