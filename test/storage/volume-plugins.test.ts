/** Volumes of drivers in other processes: a real one that mounts directories, down, slow or broken at times. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { after, before, describe, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { CliResult } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { call, callJson } from '../support/http.js';
import { VolumePluginServer } from '../support/volume-plugin.js';
import { waitFor } from '../support/wait.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
const NAME = `vol-${randomBytes(4).toString('hex')}`;
let engine: Engine;
let image: string;
let plugin: VolumePluginServer;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
  plugin = new VolumePluginServer(NAME, 'global');
  await plugin.start();
  cleanup.add(() => plugin.discard());
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => engineOk(engine, args);
const cli = (...args: string[]): Promise<CliResult> => attempt(engine, args);
const listed = async (filters: unknown = {}): Promise<{ names: string[]; warnings: string[] | null }> => {
  const { Volumes, Warnings } = await callJson<{ Volumes: { Name: string }[]; Warnings: string[] | null }>(
    engine.socketPath,
    'GET',
    `/volumes?filters=${encodeURIComponent(JSON.stringify(filters))}`,
  );
  return { names: Volumes.map(({ Name }) => Name).toSorted(), warnings: Warnings };
};

describe('a volume of a plugin', () => {
  test('is made, shown, used by containers, counted, and removed', async () => {
    await ok('volume', 'create', '-d', NAME, '-o', 'size=big', '--label', 'a=b', 'shared');
    assert.deepEqual(plugin.calls.find(({ method }) => method === 'VolumeDriver.Create')?.argument, {
      Name: 'shared',
      Opts: { size: 'big' },
    });
    const volume = JSON.parse(await ok('volume', 'inspect', 'shared')) as [Record<string, unknown>];
    const { Driver, Labels, Name, Options, Scope, Status } = volume[0];
    assert.deepEqual(
      { Driver, Labels, Name, Options, Scope, Status },
      {
        Driver: NAME,
        Labels: { a: 'b' },
        Name: 'shared',
        Options: { size: 'big' },
        Scope: 'global',
        Status: { colour: 'blue' },
      },
    );
    assert.deepEqual((await listed({ driver: [NAME] })).names, ['shared']);
    assert.match(await ok('info', '-f', '{{json .Plugins.Volume}}'), new RegExp(NAME));

    const first = await ok(
      'run',
      '-d',
      '-v',
      'shared:/data',
      image,
      'sh',
      '-c',
      'echo kept >/data/file; exec sleep 1000',
    );
    const second = await ok('run', '-d', '-v', 'shared:/data', image, 'sleep', '1000');
    assert.equal(plugin.uses('shared'), 2);
    const mounts = JSON.parse(await ok('inspect', '-f', '{{json .Mounts}}', first)) as {
      Type: string;
      Name: string;
      Driver: string;
      Source: string;
    }[];
    assert.deepEqual(
      mounts.map(({ Type, Name, Driver }) => [Type, Name, Driver]),
      [['volume', 'shared', NAME]],
    );
    // The other engine looks for it before it is mounted.
    if (!onDockerd) assert.match(mounts[0]?.Source ?? '', /\/mounted\/shared$/);
    await waitFor('the file', async () => (await cli('exec', second, 'cat', '/data/file')).stdout.trim() === 'kept');
    assert.match((await cli('volume', 'rm', 'shared')).stderr, /volume is in use/);
    await ok('kill', first);
    await waitFor('the unmount', () => plugin.uses('shared') === 1);
    assert.equal(await ok('exec', second, 'cat', '/data/file'), 'kept');
    await ok('start', first);
    assert.equal(plugin.uses('shared'), 2);
    await ok('rm', '-f', first, second);
    assert.equal(plugin.uses('shared'), 0);

    // Copies reach a volume that nobody has mounted.
    await ok('create', '--name', 'resting', '-v', 'shared:/data', image, 'true');
    assert.equal((await call(engine.socketPath, 'HEAD', '/containers/resting/archive?path=/data/file')).status, 200);
    assert.equal(plugin.uses('shared'), 0);
    await ok('rm', 'resting');

    await ok('volume', 'rm', 'shared');
    assert.deepEqual([...plugin.volumes.keys()], []);
    assert.deepEqual((await listed()).names, []);
  });

  test('takes what the image has in its place, as any other; is made by the run of a container too', async () => {
    assert.match(await ok('run', '--rm', '--volume-driver', NAME, '-v', 'filled:/etc', image, 'ls', '/etc'), /passwd/);
    assert.match(
      await ok(
        'run',
        '--rm',
        '--mount',
        `type=volume,src=filled,dst=/other,volume-driver=${NAME}`,
        image,
        'ls',
        '/other',
      ),
      /passwd/,
    );
    assert.equal(plugin.uses('filled'), 0);
    assert.deepEqual([...plugin.volumes.keys()], ['filled']);
    await ok('volume', 'rm', 'filled');
  });

  test('from elsewhere is found by its name alone', async () => {
    const other = new VolumePluginServer(`${NAME}-other`);
    await other.start();
    (other.volumes as Map<string, Set<string>>).set('foreign', new Set());
    try {
      assert.deepEqual((await listed()).names, ['foreign']);
      assert.equal(await ok('volume', 'inspect', '-f', '{{.Driver}}', 'foreign'), other.name);
      await ok('create', '--name', 'finder', '-v', 'foreign:/f:nocopy', image, 'true');
      assert.equal(await ok('inspect', '-f', '{{(index .Mounts 0).Driver}}', 'finder'), other.name);
      await ok('rm', 'finder');
      assert.equal((await call(engine.socketPath, 'GET', '/volumes/nowhere')).status, 404);
    } finally {
      await other.discard();
    }
    await cli('volume', 'rm', '-f', 'foreign');
  });

  test('is left alone by prune; a name belongs to one driver', async () => {
    await ok('volume', 'create', '-d', NAME, 'stays');
    assert.doesNotMatch(await ok('volume', 'prune', '-f'), /stays/);
    const taken = await call(engine.socketPath, 'POST', '/volumes/create', {
      json: { Name: 'stays', Driver: 'local' },
    });
    assert.equal(taken.status, 409, taken.text);
    assert.match(taken.text, /volume name must be unique/);
    assert.equal(
      (await call(engine.socketPath, 'POST', '/volumes/create', { json: { Name: 'stays', Driver: NAME } })).status,
      201,
    );
    assert.equal(
      plugin.calls.filter(({ method, argument }) => method === 'VolumeDriver.Create' && argument['Name'] === 'stays')
        .length,
      1,
    );
    await ok('volume', 'rm', 'stays');
  });
});

describe('a plugin that fails', () => {
  test('is quoted, and nothing is left', async () => {
    const refused = await call(engine.socketPath, 'POST', '/volumes/create', {
      json: { Name: 'x1', Driver: NAME, DriverOpts: { bad: '1' } },
    });
    assert.equal(refused.status, 500, refused.text);
    assert.match(refused.text, /create x1: .*bad option/);
    const unknown = await call(engine.socketPath, 'POST', '/volumes/create', {
      json: { Name: 'x2', Driver: 'no-such-driver' },
    });
    assert.equal(unknown.status, 404, unknown.text);
    assert.match(
      unknown.text,
      /create x2: error looking up volume plugin no-such-driver: plugin \\"no-such-driver\\" not found/,
    );
    assert.ok(!(await listed()).names.some((name) => name.startsWith('x')));
  });

  test('rubbish, silence and cut connections are errors of the one request', async () => {
    await ok('volume', 'create', '-d', NAME, 'hard');
    for (const fault of ['<html>', '{"Mountpoint":7}', '{"Err":"out of order"}', 'cut'] as const) {
      plugin.faults.set('VolumeDriver.Mount', fault);
      const { status, stderr } = await cli('run', '--rm', '-v', 'hard:/h:nocopy', image, 'true');
      assert.notEqual(status, 0, fault);
      // The other engine takes an answer without a path for one.
      if (!onDockerd) assert.match(stderr, /error while mounting volume '.*': /, fault);
      if (fault.includes('out of order')) assert.match(stderr, /out of order/);
    }
    plugin.faults.clear();
    assert.equal(await ok('ps', '-aq'), '');
    assert.equal(await ok('run', '--rm', '-v', 'hard:/h', image, 'echo', 'well'), 'well');
    assert.equal(plugin.uses('hard'), 0);
    await ok('volume', 'rm', 'hard');
  });

  test(
    'one that is down keeps no container from ending, and is asked again when it is back',
    { skip: onDockerd },
    async () => {
      await ok('volume', 'create', '-d', NAME, 'away');
      const id = await ok('run', '-d', '-v', 'away:/a', image, 'sleep', '1000');
      await plugin.stop();
      const { names, warnings } = await listed();
      assert.deepEqual([names, warnings?.length], [['away'], 1]);
      const mounted = await cli('run', '--rm', '-v', 'away:/a:nocopy', image, 'true');
      assert.match(
        mounted.stderr,
        new RegExp(`error while mounting volume '.*': .*plugin ${NAME}|error while mounting volume '.*': .*${NAME}`),
      );
      await ok('kill', id);
      await ok('wait', id);
      assert.equal(plugin.uses('away'), 1);
      await plugin.start();
      // A volume that could not be unmounted is unmounted before the same container gets it again.
      await ok('start', id);
      assert.equal(plugin.uses('away'), 1);
      await ok('rm', '-f', id);
      await waitFor('the unmount', () => plugin.uses('away') === 0);
      await ok('volume', 'rm', 'away');
      // Forgotten by force while its driver is gone.
      await ok('volume', 'create', '-d', NAME, 'lost');
      await plugin.stop();
      assert.notEqual((await cli('volume', 'rm', 'lost')).status, 0);
      await ok('volume', 'rm', '-f', 'lost');
      await plugin.start();
      assert.equal((await listed()).names.join(), 'lost', 'the driver still has it');
      await ok('volume', 'rm', 'lost');
    },
  );
});

test(
  'a daemon that is killed keeps the count: those that run have theirs, those that ended are unmounted',
  { skip: onDockerd },
  async () => {
    await ok('volume', 'create', '-d', NAME, 'counted');
    const runs = await ok('run', '-d', '-v', 'counted:/c', image, 'sleep', '1000');
    const ends = await ok('run', '-d', '-v', 'counted:/c', image, 'sleep', '1000');
    const pid = Number(await ok('inspect', '-f', '{{.State.Pid}}', ends));
    await engine.stop('SIGKILL');
    process.kill(pid, 'SIGKILL');
    plugin.take();
    await engine.start();
    await waitFor('the unmount', () => plugin.uses('counted') === 1);
    // Questions, such as where it is, change nothing.
    assert.deepEqual(
      plugin.take().filter((call) => call.endsWith('ount')),
      ['Unmount'],
    );
    assert.equal(await ok('run', '--rm', '--volumes-from', runs, image, 'ls', '-d', '/c'), '/c');
    await ok('rm', '-f', runs, ends);
    assert.equal(plugin.uses('counted'), 0);
    await ok('volume', 'rm', 'counted');
  },
);

test(
  'a driver that hangs holds up no start that ends a removal, which a later start ends if this one cannot',
  { skip: onDockerd },
  async () => {
    const id = await ok('create', '--volume-driver', NAME, '-v', '/a', image, 'true');
    const isAsked = (): boolean => plugin.take().includes('Remove');
    plugin.faults.set('VolumeDriver.Remove', 'hang');
    plugin.take();
    const removal = call(engine.socketPath, 'DELETE', `/containers/${id}?v=1`).catch(() => undefined);
    await waitFor('the driver to be asked', isAsked);
    await engine.stop('SIGKILL');
    await removal;
    await engine.start();
    await waitFor('the driver to be asked again', isAsked);
    assert.equal(await ok('ps', '-aq'), '');
    await engine.stop();
    plugin.faults.clear();
    await engine.start();
    await waitFor('the volume to be gone', () => plugin.volumes.size === 0);
    await waitFor('it to be known', async () => (await listed()).names.length === 0);
    const isGone = (): boolean =>
      !readdirSync(join(engine.dir, 'data', 'containers')).some((name) => name.includes(id));
    await waitFor('the last of the container to go', isGone);
  },
);

test('a creation that is cut short by a kill leaves no volume that nobody has named', { skip: onDockerd }, async () => {
  const VolumeOptions = { DriverConfig: { Name: NAME } };
  // The image has files for the first one.
  const Mounts = ['/etc', '/empty'].map((Target) => ({ Type: 'volume', Target, VolumeOptions }));
  const named = '0'.repeat(64);
  const json = { Image: image, HostConfig: { Binds: ['/local', `${named}:/named`], Mounts } };
  const kept = [named, ...(await listed()).names];
  for (const [method, fault] of [
    ['Create', 'mute'],
    ['Mount', 'hang'],
  ] as const) {
    plugin.take();
    plugin.faults.set(`VolumeDriver.${method}`, fault);
    const creation = call(engine.socketPath, 'POST', '/containers/create', { json }).catch(() => undefined);
    await waitFor('the driver to be asked', () => plugin.take().includes(method));
    await engine.stop('SIGKILL');
    await creation;
    plugin.faults.clear();
    assert.equal(plugin.volumes.size, method === 'Create' ? 1 : 2);
    await engine.start();
    await waitFor('the volumes to go', async () => isDeepStrictEqual((await listed()).names, kept));
    assert.equal(plugin.volumes.size, 0);
    await waitFor('the last of it to go', () => readdirSync(join(engine.dir, 'data', 'containers')).length === 0);
  }
  await ok('volume', 'rm', named);
});
