/** `userns-remap` and files: whose they are on the host, in archives, in volumes and in images. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { getXattr, setXattr } from '../../src/sys/files/xattr.js';
import { attempt } from '../support/engine-commands.js';
import { call } from '../support/http.js';
import { archiveOf, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, sha256, tarOf } from '../support/image-builder.js';
import { hostGid, hostUid } from '../support/remapper.js';
import { hostOwner, owner, remappedApart } from '../support/remapped-engine.js';
import { IMAGE, image, owners } from '../support/users-image.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
/** cap_net_raw, permitted and effective, as an archive has it. */
const NET_RAW = Buffer.from('0100000200200000000000000000000000000000', 'hex');
const remapped = remappedApart();
const { ok, run, inspect, temp } = remapped;

describe('files', () => {
  before(() => ok('run', '-d', '--name', 'plain', IMAGE, 'sleep', '6000'));

  test('layers are owned by whom their owners stand for, and give their digests again', async () => {
    const { GraphDriver } = await inspect('plain');
    const { LowerDir, UpperDir } = GraphDriver.Data;
    assert.ok(UpperDir.startsWith(join(remapped.engine.dir, 'data', `${hostUid(0)}.${hostGid(0)}`)), UpperDir);
    // Above it is the layer of what every container finds in its root.
    const top = LowerDir.split(':')[1] ?? '';
    for (const [path, uid, gid] of [
      ['types', 1000, 2000],
      ...(onDockerd
        ? []
        : ([
            ['types/plain', 1, 2],
            ['types/hard', 1, 2],
          ] as const)),
      ['types/soft', 0, 0],
      ['types/fifo', 0, 0],
      ['types/null', 0, 0],
      ['content/own', 1500, 50],
      ['implied', 0, 0],
      ['implied/by/this', 0, 0],
      ['', 0, 0],
    ] as const) {
      assert.equal(owner(join(top, path)), hostOwner(uid, gid), path);
    }
    assert.equal(statSync(join(top, 'types')).mode & 0o7777, 0o2775);
    assert.equal(statSync(join(top, 'types/setuid')).mode & 0o7777, 0o4755);
    const { body } = await call(remapped.engine.socketPath, 'GET', `/images/${IMAGE}/get`);
    writeFileSync(join(temp, 'saved.tar'), body);
    const manifest = JSON.parse(
      execFileSync('tar', ['-xOf', join(temp, 'saved.tar'), 'manifest.json'], { encoding: 'utf8' }),
    ) as { Layers: string[] }[];
    const digests = manifest[0]?.Layers.map((layer) =>
      sha256(execFileSync('tar', ['-xOf', join(temp, 'saved.tar'), layer], { maxBuffer: 1 << 28 })),
    );
    assert.deepEqual(
      digests,
      image.layers.map(({ diffId }) => diffId),
    );
  });

  test('files of containers are theirs in exports, commits and imports; their changes are what they made', async () => {
    await ok(
      'run',
      '--name',
      'maker',
      IMAGE,
      'sh',
      '-c',
      'mkdir /made; echo a >/made/a; ln /made/a /made/b; chown 1500:7 /made/a; mknod /made/fifo p; rm /types/empty',
    );
    assert.deepEqual((await ok('diff', 'maker')).split('\n').sort(), [
      'A /made',
      'A /made/a',
      'A /made/b',
      'A /made/fifo',
      'C /types',
      'D /types/empty',
    ]);
    const { UpperDir } = (await inspect('maker')).GraphDriver.Data;
    assert.equal(owner(join(UpperDir, 'made/a')), hostOwner(1500, 7));
    const exported = owners((await call(remapped.engine.socketPath, 'GET', '/containers/maker/export')).body);
    for (const line of [
      'made/ 0:0',
      'made/fifo 0:0',
      'content/own 1500:50',
      'bin/busybox 0:0',
      'etc/hosts 0:0',
      '.dockerenv 0:0',
    ])
      assert.ok(exported.includes(line), line);
    await ok('commit', 'maker', 'test/committed:1');
    assert.equal(
      await run(
        'test/committed:1',
        'sh',
        '-c',
        'stat -c %u:%g /made /made/a /made/b; test -e /types/empty || echo gone',
      ),
      '0:0\n1500:7\n1500:7\ngone',
    );
    const { body } = await call(remapped.engine.socketPath, 'GET', '/containers/maker/export');
    writeFileSync(join(temp, 'exported.tar'), body);
    await ok('import', join(temp, 'exported.tar'), 'test/imported:1');
    assert.equal(
      await run('test/imported:1', 'stat', '-c', '%u:%g', '/made/a', '/content', '/bin'),
      '1500:7\n1500:50\n0:0',
    );
    await ok('rm', 'maker');
    await ok('rmi', 'test/committed:1', 'test/imported:1');
  });

  test('archives in and out have the ids of the container, running and stopped', async () => {
    const tar = tarOf([
      { path: 'in/', type: 'directory', uid: 1000, gid: 1000 },
      { path: 'in/file', content: 'x', uid: 1500, gid: 7, mode: 0o4711 },
      { path: 'in/hard', type: 'link', target: 'in/file', uid: 1500, gid: 7, mode: 0o4711 },
      { path: 'in/null', type: 'character-device', major: 1, minor: 3 },
      { path: 'in/soft', type: 'symlink', target: 'file', uid: 3, gid: 4 },
      { path: 'without/entry', content: 'y' },
    ]);
    await ok('create', '--name', 'stopped', '-v', '/volume', '-u', '1100:1200', IMAGE, 'true');
    for (const [container, place] of [
      ['plain', '/'],
      ['plain', '/dev/shm'],
      ['stopped', '/'],
      ['stopped', '/volume'],
    ] as const) {
      // dockerd does not see what is mounted in a running container.
      if (onDockerd && place === '/dev/shm') continue;
      const reply = await call(remapped.engine.socketPath, 'PUT', `/containers/${container}/archive?path=${place}`, {
        body: tar,
        headers: { 'Content-Type': 'application/x-tar' },
      });
      assert.equal(reply.status, 200, `${container} ${place}: ${reply.text}`);
      const out = async (name: string): Promise<string[]> =>
        owners(
          (await call(remapped.engine.socketPath, 'GET', `/containers/${container}/archive?path=${join(place, name)}`))
            .body,
        );
      // dockerd leaves them as the host has them on their way out.
      if (onDockerd) continue;
      assert.deepEqual(
        await out('in'),
        ['in/ 1000:1000', 'in/file 1500:7', 'in/hard 1500:7', 'in/null 0:0', 'in/soft 3:4'],
        `${container} ${place}`,
      );
      assert.deepEqual(await out('without'), ['without/ 0:0', 'without/entry 0:0'], `${container} ${place}`);
    }
    assert.equal(await ok('exec', 'plain', 'stat', '-c', '%u:%g %h %a', '/in/file'), '1500:7 2 4711');
    if (!onDockerd) {
      const asUser = await call(remapped.engine.socketPath, 'PUT', '/containers/stopped/archive?path=/&copyUIDGID=1', {
        body: tarOf([{ path: 'mine', content: 'x', uid: 5 }]),
        headers: { 'Content-Type': 'application/x-tar' },
      });
      assert.equal(asUser.status, 200);
      assert.deepEqual(
        owners((await call(remapped.engine.socketPath, 'GET', '/containers/stopped/archive?path=/mine')).body),
        ['mine 1100:1200'],
      );
    }
    await ok('rm', '-v', 'stopped');
  });

  test('ids beyond the ranges are refused and leave nothing', async () => {
    const message = /Container ID 70000 cannot be mapped to a host ID/;
    const beyond = { path: 'beyond', content: 'x', uid: 70_000 };
    const reply = await call(remapped.engine.socketPath, 'PUT', '/containers/plain/archive?path=/', {
      body: tarOf([beyond]),
      headers: { 'Content-Type': 'application/x-tar' },
    });
    assert.equal(reply.status, onDockerd ? 500 : 400);
    assert.match(reply.text, message);
    if (!onDockerd) assert.notEqual((await attempt(remapped.engine, ['exec', 'plain', 'ls', '/beyond'])).status, 0);
    // Nor are there directories without anything that was meant to be in them.
    const refused = await call(remapped.engine.socketPath, 'PUT', '/containers/plain/archive?path=/', {
      body: tarOf([
        { path: 'empty', type: 'directory' },
        { path: 'empty/implied/below', type: 'directory' },
        { path: 'kept', type: 'directory' },
        { path: 'kept/file', content: 'x' },
        { path: 'in', type: 'directory' },
        { path: 'empty/beyond', content: 'x', uid: 70_000 },
      ]),
      headers: { 'Content-Type': 'application/x-tar' },
    });
    assert.match(refused.text, message);
    if (!onDockerd)
      assert.equal(await ok('exec', 'plain', 'sh', '-c', 'ls -d /empty /kept/* /in 2>&-; true'), '/in\n/kept/file');
    const images = await ok('images', '-aq');
    const archive = archiveOf(oldArchive(buildImage({ layers: [buildLayer([beyond])] }), ['test/beyond:1']));
    assert.match(
      (
        await call(remapped.engine.socketPath, 'POST', '/images/load', {
          body: archive,
          headers: { 'Content-Type': 'application/x-tar' },
        })
      ).text,
      message,
    );
    assert.equal(await ok('images', '-aq'), images);
    assert.match(
      (await attempt(remapped.engine, ['exec', '-u', '70000', 'plain', 'true'])).stdout,
      /unmapped u(ser|id)/,
    );
  });

  test(
    'file capabilities count in the container, and leave it without its root',
    { skip: onDockerd && 'dockerd gives them to the root of the host' },
    async () => {
      const [local, out] = [join(temp, 'able'), join(temp, 'out')];
      for (const dir of [local, out]) mkdirSync(dir);
      copyFileSync('/bin/busybox', join(local, 'busybox'));
      setXattr(join(local, 'busybox'), 'security.capability', NET_RAW);
      const xattrs = ['--xattrs', '--xattrs-include=*'];
      const body = execFileSync('tar', [...xattrs, '-cf', '-', '-C', temp, 'able'], { maxBuffer: 1 << 28 });
      await call(remapped.engine.socketPath, 'PUT', '/containers/plain/archive?path=/', {
        body,
        headers: { 'Content-Type': 'application/x-tar' },
      });
      assert.match(
        await ok('exec', '-u', '1000', 'plain', '/able/busybox', 'grep', 'CapEff', '/proc/self/status'),
        /^CapEff:\t0000000000002000$/,
      );
      const { MergedDir } = (await inspect('plain')).GraphDriver.Data;
      assert.equal(getXattr(join(MergedDir, 'able/busybox'), 'security.capability')?.readUInt32LE(20), hostUid(0));
      execFileSync('tar', [...xattrs, '-xf', '-', '-C', out], {
        input: (await call(remapped.engine.socketPath, 'GET', '/containers/plain/archive?path=/able')).body,
      });
      assert.deepEqual(getXattr(join(out, 'able/busybox'), 'security.capability'), NET_RAW);
    },
  );

  test('volumes: their roots, what the image has in their place, sharing, places that are made', async () => {
    const made = join(temp, 'made', 'here');
    await ok(
      'run',
      '--name',
      'one',
      '-v',
      'fresh:/nothing',
      '-v',
      'filled:/content',
      '-v',
      `${made}:/bound`,
      '--tmpfs',
      '/t',
      IMAGE,
      'sh',
      '-c',
      'echo 1 >/nothing/f; echo 2 >/bound/f; echo 3 >/t/f',
    );
    const places = JSON.parse(await ok('volume', 'inspect', 'fresh', 'filled')) as { Mountpoint: string }[];
    const [fresh = '', filled = ''] = places.map(({ Mountpoint }) => Mountpoint);
    assert.deepEqual(
      [fresh, join(fresh, 'f'), filled, join(filled, 'own'), join(filled, 'root')].map(owner),
      [
        [0, 0],
        [0, 0],
        [1500, 50],
        [1500, 50],
        [0, 0],
      ].map(([uid = 0, gid = 0]) => hostOwner(uid, gid)),
    );
    assert.deepEqual([join(temp, 'made'), made, join(made, 'f')].map(owner), Array<string>(3).fill(hostOwner(0, 0)));
    assert.equal(
      await run(
        '--volumes-from',
        'one:ro',
        IMAGE,
        'sh',
        '-c',
        'cat /nothing/f /content/own; stat -c %u:%g /content/own; (echo x >/nothing/g) 2>/dev/null || echo read-only',
      ),
      '1\nof 1500\n1500:50\nread-only',
    );
    // A file that belongs to nobody in the container is not its to write.
    writeFileSync(join(temp, 'of-the-host'), 'secret\n', { mode: 0o600 });
    assert.equal(
      await run(
        '-v',
        `${temp}/of-the-host:/f`,
        IMAGE,
        'sh',
        '-c',
        'stat -c %u:%g /f; cat /f 2>/dev/null || echo kept out',
      ),
      '65534:65534\nkept out',
    );
    await ok('rm', 'one');
    await ok('volume', 'rm', 'fresh', 'filled');
  });
});
