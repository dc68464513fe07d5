/** `userns-remap`: containers whose root is nobody on the host, and what of it shows in files, networks and the API. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { getXattr, setXattr } from '../../src/sys/files/xattr.js';
import { Cleanup } from '../support/cleanup.js';
import { docker, dockerOk } from '../support/cli.js';
import { dockerd } from '../support/dockerd.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, busyboxEntries, everyFileType, sha256, tarOf } from '../support/image-builder.js';
import { FIRST, GROUPS, hostGid, hostUid, makeRemapper, SECOND } from '../support/remapper.js';
import { waitFor } from '../support/wait.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
const temp = mkdtempSync(join(tmpdir(), 'userns-test-'));
/** cap_net_raw, permitted and effective, as an archive has it. */
const NET_RAW = Buffer.from('0100000200200000000000000000000000000000', 'hex');
const image = buildImage({
  layers: [
    buildLayer(busyboxEntries()),
    buildLayer([
      ...everyFileType(),
      { path: 'implied/by/this', content: 'its directories have no entries\n' },
      { path: 'content/', type: 'directory', mode: 0o750, uid: 1500, gid: 50 },
      { path: 'content/own', content: 'of 1500\n', uid: 1500, gid: 50 },
      { path: 'content/root', content: 'of root\n' },
    ]),
  ],
});
const IMAGE = 'test/userns:1';
let engine: Engine;
/** Whether its next start does. */
let isRemapping = true;

/** Its directory lets the containers' root pass, which those of `mkdtemp` do not. */
function remapping(...args: string[]): EngineKind {
  const options = { args: ['--live-restore', ...args] };
  const plain = onDockerd ? dockerd(options) : engined(options);
  return {
    ...plain,
    command(dir, socketPath) {
      chmodSync(dir, 0o711);
      return [...plain.command(dir, socketPath), ...(isRemapping ? ['--userns-remap', 'remapper'] : [])];
    },
  };
}

before(async () => {
  cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
  makeRemapper(temp, cleanup);
  // crun refuses hosts that have control groups of both versions: it is not shown those of version 2.
  writeFileSync(
    join(temp, 'crun'),
    '#!/bin/sh\nexec unshare --mount sh -c \'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec crun "$@"\' sh "$@"\n',
    { mode: 0o755 },
  );
  engine = await Engine.start(remapping('--add-runtime', `crun=${temp}/crun`));
  cleanup.add(() => engine.close());
  cleanup.add(async () => {
    const all = await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/containers/json?all=1');
    for (const { Id } of all) await callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1&v=1`);
  });
  await load(engine, archiveOf(oldArchive(image, [IMAGE])));
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => dockerOk(engine, args);
const run = (...args: string[]): Promise<string> => ok('run', '--rm', ...args);

interface Inspection {
  readonly State: { readonly Pid: number; readonly Health?: { readonly Status: string } };
  readonly GraphDriver: {
    readonly Data: { readonly UpperDir: string; readonly LowerDir: string; readonly MergedDir: string };
  };
  readonly Mounts: readonly { readonly Source: string }[];
}
const inspect = (name: string): Promise<Inspection> =>
  callJson<Inspection>(engine.socketPath, 'GET', `/containers/${name}/json`);
const pidOf = async (name: string): Promise<number> => (await inspect(name)).State.Pid;
const owner = (path: string): string => {
  const { uid, gid } = lstatSync(path);
  return `${uid}:${gid}`;
};
const hostOwner = (uid: number, gid: number): string => `${hostUid(uid)}:${hostGid(gid)}`;
const idsOf = (pid: number): string =>
  /^Uid:\t(\d+)[^]*^Gid:\t(\d+)/m
    .exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
    ?.slice(1, 3)
    .join(':') ?? '';
/** `name uid:gid` of the entries of a tar. */
const owners = (tar: Buffer): string[] =>
  execFileSync('tar', ['--numeric-owner', '-tvf', '-'], { input: tar, encoding: 'utf8', maxBuffer: 1 << 26 })
    .split('\n')
    .flatMap((line) => {
      const [, ids = '', , , , name = ''] = line.split(/ +/);
      return name === '' ? [] : [`${name} ${ids.replace('/', ':')}`];
    });

describe('processes', () => {
  test('root of a container is nobody on the host, and has all ids of the ranges', async () => {
    await ok('run', '-d', '--name', 'plain', IMAGE, 'sleep', '6000');
    const pid = await pidOf('plain');
    assert.equal(idsOf(pid), hostOwner(0, 0));
    const map = (name: string): string[] =>
      readFileSync(`/proc/${pid}/${name}`, 'utf8')
        .trim()
        .split('\n')
        .map((line) => line.trim().replaceAll(/ +/g, ' '));
    assert.deepEqual(map('uid_map'), [`0 ${FIRST} 1000`, `1000 ${SECOND} 64536`]);
    assert.deepEqual(map('gid_map'), [`0 ${GROUPS} 65536`]);
    assert.notEqual(readlinkSync(`/proc/${pid}/ns/user`), readlinkSync('/proc/self/ns/user'));
    assert.equal(
      await ok(
        'exec',
        'plain',
        'sh',
        '-c',
        'id -u; id -g; stat -c %u:%g / /bin/busybox /content/own /etc/hosts /etc/hostname /etc/resolv.conf /dev/shm',
      ),
      ['0', '0', '0:0', '0:0', '1500:50', ...Array<string>(4).fill('0:0')].join('\n'),
    );
  });

  test('exec, also of another user, top, stats, pause, health checks', async () => {
    await ok('exec', '-d', '-u', '1200:300', 'plain', 'sleep', '4321');
    const top = await waitFor('the exec', async () => {
      const text = await ok('top', 'plain', '-eo', 'pid,uid,args');
      return /^(\d+) +\d+ +sleep 4321$/m.exec(text)?.[1];
    });
    assert.equal(idsOf(Number(top)), hostOwner(1200, 300));
    assert.equal(await ok('exec', '--privileged', 'plain', 'id', '-u'), '0');
    await ok('pause', 'plain');
    await ok('unpause', 'plain');
    assert.match(await ok('stats', '--no-stream', '--format', '{{.PIDs}}', 'plain'), /^\d+$/);
    await ok(
      'run',
      '-d',
      '--name',
      'healthy',
      ...(onDockerd ? [] : ['--init']),
      '--health-cmd',
      'test "$(id -u)" = 0',
      '--health-interval',
      '100ms',
      IMAGE,
      'sleep',
      '6000',
    );
    await waitFor('health', async () => (await inspect('healthy')).State.Health?.Status === 'healthy');
    await ok('rm', '-f', 'healthy');
  });

  test('output, terminals and input: a container opens its own streams anew', async () => {
    assert.equal(
      await run(IMAGE, 'sh', '-c', 'echo out >/dev/stdout; echo err >/proc/self/fd/2; echo done'),
      'out\ndone',
    );
    assert.equal(
      (await docker(engine, ['run', '--rm', '-i', IMAGE, 'cat', '/dev/stdin'], { input: 'typed\n' })).stdout,
      'typed\n',
    );
    const { stdout } = await docker(
      engine,
      ['run', '--rm', '-t', '-u', '1000', IMAGE, 'sh', '-c', 'tty; echo x >/dev/tty; stat -c %u $(tty)'],
      { terminal: { rows: 20, columns: 70 } },
    );
    assert.deepEqual(stdout.split(/\r*\n/).slice(0, 3), ['/dev/pts/0', 'x', '1000']);
    await ok('run', '--name', 'logged', IMAGE, 'sh', '-c', 'echo one; echo two');
    assert.equal(await ok('logs', 'logged'), 'one\ntwo');
    await ok('rm', 'logged');
  });

  test('namespaces of other containers, with the user namespace that they belong to', async () => {
    const pid = await pidOf('plain');
    for (const mode of ['--network', '--pid']) {
      assert.equal(
        await run(mode, 'container:plain', IMAGE, 'readlink', '/proc/self/ns/user'),
        readlinkSync(`/proc/${pid}/ns/user`),
        mode,
      );
    }
    await ok(
      'run',
      '-d',
      '--name',
      'donor',
      '--ipc',
      'shareable',
      IMAGE,
      'sh',
      '-c',
      'echo shared >/dev/shm/f; exec sleep 6000',
    );
    await waitFor(
      'the file',
      async () => (await docker(engine, ['exec', 'donor', 'test', '-s', '/dev/shm/f'])).status === 0,
    );
    assert.equal(
      await run(
        '--ipc',
        'container:donor',
        '--network',
        'container:donor',
        IMAGE,
        'sh',
        '-c',
        'cat /dev/shm/f; stat -c %u:%g /dev/shm /dev/shm/f',
      ),
      'shared\n0:0\n0:0',
    );
    await ok('rm', '-f', 'donor');
  });

  test('resources, devices, capabilities, read-only roots', async () => {
    assert.equal(
      await run(
        '--memory',
        '64m',
        '--cap-drop',
        'ALL',
        '--read-only',
        '--tmpfs',
        '/tmp',
        '--shm-size',
        '1m',
        '--device',
        '/dev/kmsg',
        IMAGE,
        'sh',
        '-c',
        'test -c /dev/kmsg && echo x >/dev/null && echo y >/tmp/y && stat -c %u /tmp && (echo z >/z) 2>/dev/null || echo read-only',
      ),
      '0\nread-only',
    );
    assert.equal(await run('--security-opt', 'no-new-privileges', IMAGE, 'id', '-u'), '0');
  });

  if (!onDockerd) {
    test('with crun', async () => {
      assert.equal(
        await run(
          '--runtime',
          'crun',
          '-v',
          'crunned:/content',
          IMAGE,
          'sh',
          '-c',
          'id -u; stat -c %u:%g /content /etc/hosts; wc -l </proc/self/uid_map',
        ),
        '0\n1500:50\n0:0\n2',
      );
      await ok('volume', 'rm', 'crunned');
    });
  }
});

describe('networks', () => {
  test('published ports, names, low ports, pings, and parameters of the network', async () => {
    await ok('network', 'create', 'mine');
    await ok(
      'run',
      '-d',
      '--name',
      'web',
      '--network',
      'mine',
      '-p',
      '127.0.0.1::80',
      '-u',
      '1000',
      IMAGE,
      'sh',
      '-c',
      'while :; do printf "HTTP/1.0 200 OK\\r\\n\\r\\nserved" | nc -l -p 80; done',
    );
    const port = (await ok('port', 'web', '80')).split(':').at(-1);
    const body = await waitFor(
      'the page',
      () =>
        new Promise<string | undefined>((resolve) => {
          const request = get({ port, host: '127.0.0.1', agent: false }, (response) => {
            let text = '';
            response.on('data', (chunk) => (text += String(chunk)));
            response.on('end', () => resolve(text));
          });
          request.once('error', () => resolve(undefined));
        }),
    );
    assert.equal(body, 'served');
    assert.match(await run('--network', 'mine', IMAGE, 'nslookup', 'web'), /Name:\s+web/);
    assert.match(await run('--network', 'mine', IMAGE, 'ping', '-c', '1', '-w', '5', 'web'), / 0% packet loss/);
    assert.equal(
      await run(
        '--sysctl',
        'net.ipv4.ip_default_ttl=42',
        IMAGE,
        'sh',
        '-c',
        'cat /proc/sys/net/ipv4/ip_default_ttl; ls /sys/class/net | tr "\\n" " "; ip link set lo mtu 1400 2>&1 || true',
      ),
      '42\neth0 lo ip: SIOCSIFMTU: Operation not permitted',
    );
    assert.equal(
      await run('--cap-add', 'NET_ADMIN', IMAGE, 'sh', '-c', 'ip link set lo mtu 1400 && cat /sys/class/net/lo/mtu'),
      '1400',
    );
    assert.equal(await run('--network', 'none', IMAGE, 'ls', '/sys/class/net'), 'lo');
    await ok('network', 'connect', 'mine', 'plain');
    assert.match(await ok('exec', 'plain', 'ip', '-o', 'link', 'show', 'eth1'), /eth1/);
    await ok('network', 'disconnect', 'mine', 'plain');
    await ok('rm', '-f', 'web');
    await ok('network', 'rm', 'mine');
  });
});

describe('files', () => {
  test('layers are owned by whom their owners stand for, and give their digests again', async () => {
    const { GraphDriver } = await inspect('plain');
    const { LowerDir, UpperDir } = GraphDriver.Data;
    assert.ok(UpperDir.startsWith(join(engine.dir, 'data', `${hostUid(0)}.${hostGid(0)}`)), UpperDir);
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
    const { body } = await call(engine.socketPath, 'GET', `/images/${IMAGE}/get`);
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

  test('what containers make is theirs in exports, commits and imports, and their changes are what they made', async () => {
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
    const exported = owners((await call(engine.socketPath, 'GET', '/containers/maker/export')).body);
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
    const { body } = await call(engine.socketPath, 'GET', '/containers/maker/export');
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
      const reply = await call(engine.socketPath, 'PUT', `/containers/${container}/archive?path=${place}`, {
        body: tar,
        headers: { 'Content-Type': 'application/x-tar' },
      });
      assert.equal(reply.status, 200, `${container} ${place}: ${reply.text}`);
      const out = async (name: string): Promise<string[]> =>
        owners(
          (await call(engine.socketPath, 'GET', `/containers/${container}/archive?path=${join(place, name)}`)).body,
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
      const asUser = await call(engine.socketPath, 'PUT', '/containers/stopped/archive?path=/&copyUIDGID=1', {
        body: tarOf([{ path: 'mine', content: 'x', uid: 5 }]),
        headers: { 'Content-Type': 'application/x-tar' },
      });
      assert.equal(asUser.status, 200);
      assert.deepEqual(owners((await call(engine.socketPath, 'GET', '/containers/stopped/archive?path=/mine')).body), [
        'mine 1100:1200',
      ]);
    }
    await ok('rm', '-v', 'stopped');
  });

  test('ids beyond the ranges are refused and leave nothing', async () => {
    const message = /Container ID 70000 cannot be mapped to a host ID/;
    const beyond = { path: 'beyond', content: 'x', uid: 70_000 };
    const reply = await call(engine.socketPath, 'PUT', '/containers/plain/archive?path=/', {
      body: tarOf([beyond]),
      headers: { 'Content-Type': 'application/x-tar' },
    });
    assert.equal(reply.status, onDockerd ? 500 : 400);
    assert.match(reply.text, message);
    if (!onDockerd) assert.notEqual((await docker(engine, ['exec', 'plain', 'ls', '/beyond'])).status, 0);
    const images = await ok('images', '-aq');
    const archive = archiveOf(oldArchive(buildImage({ layers: [buildLayer([beyond])] }), ['test/beyond:1']));
    assert.match(
      (
        await call(engine.socketPath, 'POST', '/images/load', {
          body: archive,
          headers: { 'Content-Type': 'application/x-tar' },
        })
      ).text,
      message,
    );
    assert.equal(await ok('images', '-aq'), images);
    assert.match((await docker(engine, ['exec', '-u', '70000', 'plain', 'true'])).stdout, /unmapped u(ser|id)/);
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
      await call(engine.socketPath, 'PUT', '/containers/plain/archive?path=/', {
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
        input: (await call(engine.socketPath, 'GET', '/containers/plain/archive?path=/able')).body,
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
    // What belongs to nobody in the container is not its to write.
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

describe('the user namespace of the host', () => {
  test('--userns=host: root is root, and the files of images are those of the remapped ids', async () => {
    assert.equal(
      await run(
        '--userns',
        'host',
        IMAGE,
        'sh',
        '-c',
        'tail -c11 /proc/self/uid_map; stat -c %u:%g /bin/busybox /content/own /etc/hosts',
      ),
      ['4294967295', hostOwner(0, 0), hostOwner(1500, 50), hostOwner(0, 0)].join('\n'),
    );
    // The compared dockerd asks for more capabilities than there may be.
    for (const args of [...(onDockerd ? [] : [['--privileged']]), ['--network', 'host'], ['--pid', 'host']])
      assert.equal(await run('--userns', 'host', ...args, IMAGE, 'id', '-u'), '0', args.join(' '));
    assert.equal(
      await run('--userns', 'host', '--network', 'container:plain', IMAGE, 'ls', '/sys/class/net'),
      'eth0\nlo',
    );
  });

  test('what needs it is refused without it', async () => {
    const create = async (host: Readonly<Record<string, unknown>>): Promise<string> => {
      const { status, text } = await call(engine.socketPath, 'POST', '/containers/create', {
        json: { Image: IMAGE, HostConfig: host },
      });
      return `${status} ${(JSON.parse(text) as { message: string }).message}`;
    };
    assert.equal(
      await create({ Privileged: true }),
      '400 privileged mode is incompatible with user namespaces.  You must run the container in the host namespace when running privileged mode',
    );
    assert.equal(
      await create({ NetworkMode: 'host' }),
      "400 cannot share the host's network namespace when user namespaces are enabled",
    );
    assert.equal(
      await create({ PidMode: 'host' }),
      '400 cannot share the host PID namespace when user namespaces are enabled',
    );
    if (!onDockerd) assert.equal(await create({ UsernsMode: 'bogus' }), '400 invalid user namespace mode: bogus');
    await ok('run', '-d', '--name', 'hosts', '--userns', 'host', '--network', 'host', IMAGE, 'sleep', '6000');
    const refused = await docker(engine, ['run', '--rm', '--network', 'container:hosts', IMAGE, 'true']);
    assert.notEqual(refused.status, 0);
    if (!onDockerd)
      assert.match(refused.stderr, /cannot share namespaces of a container in the user namespace of the host/);
    await ok('rm', '-f', 'hosts');
  });
});

describe('the daemon', () => {
  test('info and system df', async () => {
    const { SecurityOptions, DockerRootDir } = await callJson<{ SecurityOptions: string[]; DockerRootDir: string }>(
      engine.socketPath,
      'GET',
      '/info',
    );
    assert.ok(SecurityOptions.includes('name=userns'), String(SecurityOptions));
    assert.equal(DockerRootDir, join(engine.dir, 'data', `${hostUid(0)}.${hostGid(0)}`));
    assert.equal(statSync(DockerRootDir).mode & 0o007, onDockerd ? statSync(DockerRootDir).mode & 0o007 : 0);
    assert.match(await ok('system', 'df', '--format', '{{.Type}} {{.TotalCount}}'), /Images 1\nContainers \d/);
  });

  test('killed and started again, it has its containers', { skip: onDockerd }, async () => {
    await engine.stop('SIGKILL');
    await engine.start();
    const pid = await pidOf('plain');
    assert.equal(idsOf(pid), hostOwner(0, 0));
    assert.equal(await ok('exec', 'plain', 'id', '-u'), '0');
    assert.match(
      await run(
        IMAGE,
        'ping',
        '-c',
        '1',
        '-w',
        '5',
        await ok('inspect', '-f', '{{.NetworkSettings.IPAddress}}', 'plain'),
      ),
      / 0% packet loss/,
    );
    await ok('restart', '-t', '0', 'plain');
    assert.equal(idsOf(await pidOf('plain')), hostOwner(0, 0));
  });

  test('without the option it has what was there before, and then again with it', { skip: onDockerd }, async () => {
    const running = await pidOf('plain');
    assert.equal(await engine.stop(), 0);
    const fsck = (...args: string[]): { status: number | null; stdout: string } =>
      spawnSync(
        MAIN,
        ['fsck', '--config-file', join(engine.dir, 'daemon.json'), '--data-root', join(engine.dir, 'data'), ...args],
        { encoding: 'utf8' },
      );
    const remapped = fsck('--userns-remap', 'remapper');
    assert.equal(remapped.status, 0, remapped.stdout);
    assert.match(remapped.stdout, new RegExp(`/${hostUid(0)}\\.${hostGid(0)}: \\d+ bytes`));
    const plain = fsck();
    assert.equal(plain.status, 0, plain.stdout);
    assert.ok(existsSync(join(engine.dir, 'data', `${hostUid(0)}.${hostGid(0)}`, 'overlay2')));
    isRemapping = false;
    await engine.start();
    assert.equal(await ok('images', '-q'), '');
    await waitFor('the end of the container that nobody has now', () => !existsSync(`/proc/${running}`));
    await load(engine, archiveOf(oldArchive(image, ['test/plain:1'])));
    await ok('create', '--name', 'unmapped', 'test/plain:1', 'stat', '-c', '%u:%g', '/content/own');
    await engine.stop();
    isRemapping = true;
    await engine.start();
    assert.equal(await ok('ps', '-a', '--format', '{{.Names}} {{.Image}}'), `plain ${IMAGE}`);
    await ok('restart', '-t', '0', 'plain');
    assert.equal(idsOf(await pidOf('plain')), hostOwner(0, 0));
    await ok('kill', 'plain');
    await engine.stop();
    isRemapping = false;
    await engine.start();
    assert.equal(await ok('start', '-a', 'unmapped'), '1500:50');
    await ok('rm', 'unmapped');
  });
});
