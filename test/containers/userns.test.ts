/**
 * `userns-remap`: containers whose root is nobody on the host, and what of it shows in processes, networks and the API.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import { get } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { docker } from '../support/cli.js';
import { attempt } from '../support/engine-commands.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { FIRST, GROUPS, hostGid, hostUid, SECOND } from '../support/remapper.js';
import { waitFor } from '../support/wait.js';
import { hostOwner, remappedApart } from '../support/remapped-engine.js';
import { IMAGE, image, idsOf } from '../support/users-image.js';

const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));
const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const remapped = remappedApart();
const { ok, run, inspect, pidOf } = remapped;

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
      (await docker(remapped.engine, ['run', '--rm', '-i', IMAGE, 'cat', '/dev/stdin'], { input: 'typed\n' })).stdout,
      'typed\n',
    );
    const { stdout } = await docker(
      remapped.engine,
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
      async () => (await attempt(remapped.engine, ['exec', 'donor', 'test', '-s', '/dev/shm/f'])).status === 0,
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
        'test -c /dev/kmsg && echo x >/dev/null && echo y >/tmp/y && stat -c %u /tmp && (echo z >/z) ' +
          '2>/dev/null || echo read-only',
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
      const { status, text } = await call(remapped.engine.socketPath, 'POST', '/containers/create', {
        json: { Image: IMAGE, HostConfig: host },
      });
      return `${status} ${(JSON.parse(text) as { message: string }).message}`;
    };
    assert.equal(
      await create({ Privileged: true }),
      '400 privileged mode is incompatible with user namespaces.  You must run the container in the host ' +
        'namespace when running privileged mode',
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
    const refused = await attempt(remapped.engine, ['run', '--rm', '--network', 'container:hosts', IMAGE, 'true']);
    assert.notEqual(refused.status, 0);
    if (!onDockerd)
      assert.match(refused.stderr, /cannot share namespaces of a container in the user namespace of the host/);
    await ok('rm', '-f', 'hosts');
  });
});

describe('the daemon', () => {
  test('info and system df', async () => {
    const { SecurityOptions, DockerRootDir } = await callJson<{ SecurityOptions: string[]; DockerRootDir: string }>(
      remapped.engine.socketPath,
      'GET',
      '/info',
    );
    assert.ok(SecurityOptions.includes('name=userns'), String(SecurityOptions));
    assert.equal(DockerRootDir, join(remapped.engine.dir, 'data', `${hostUid(0)}.${hostGid(0)}`));
    assert.equal(statSync(DockerRootDir).mode & 0o007, onDockerd ? statSync(DockerRootDir).mode & 0o007 : 0);
    assert.match(await ok('system', 'df', '--format', '{{.Type}} {{.TotalCount}}'), /Images 1\nContainers \d/);
  });

  test('killed and started again, it has its containers', { skip: onDockerd }, async () => {
    await remapped.engine.stop('SIGKILL');
    await remapped.engine.start();
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
    assert.equal(await remapped.engine.stop(), 0);
    const fsck = (...args: string[]): { status: number | null; stdout: string } =>
      spawnSync(
        MAIN,
        [
          'fsck',
          '--config-file',
          join(remapped.engine.dir, 'daemon.json'),
          '--data-root',
          join(remapped.engine.dir, 'data'),
          ...args,
        ],
        { encoding: 'utf8' },
      );
    const mapped = fsck('--userns-remap', 'remapper');
    assert.equal(mapped.status, 0, mapped.stdout);
    assert.match(mapped.stdout, new RegExp(`/${hostUid(0)}\\.${hostGid(0)}: \\d+ bytes`));
    const plain = fsck();
    assert.equal(plain.status, 0, plain.stdout);
    assert.ok(existsSync(join(remapped.engine.dir, 'data', `${hostUid(0)}.${hostGid(0)}`, 'overlay2')));
    remapped.isRemapping = false;
    await remapped.engine.start();
    assert.equal(await ok('images', '-q'), '');
    await waitFor('the end of the container that nobody has now', () => !existsSync(`/proc/${running}`));
    await load(remapped.engine, archiveOf(oldArchive(image, ['test/plain:1'])));
    await ok('create', '--name', 'unmapped', 'test/plain:1', 'stat', '-c', '%u:%g', '/content/own');
    await remapped.engine.stop();
    remapped.isRemapping = true;
    await remapped.engine.start();
    assert.equal(await ok('ps', '-a', '--format', '{{.Names}} {{.Image}}'), `plain ${IMAGE}`);
    await ok('restart', '-t', '0', 'plain');
    assert.equal(idsOf(await pidOf('plain')), hostOwner(0, 0));
    await ok('kill', 'plain');
    await remapped.engine.stop();
    remapped.isRemapping = false;
    await remapped.engine.start();
    assert.equal(await ok('start', '-a', 'unmapped'), '1500:50');
    await ok('rm', 'unmapped');
  });
});
