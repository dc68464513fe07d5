/** The daemon of an ordinary user, through RootlessKit: what works as for root, and what is refused in which words. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import {
  existsSync,
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createSocket, type Socket } from 'node:dgram';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { removeContainers } from '../support/container-removal.js';
import { buildxPlugins } from '../support/dockerd.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { freePort } from '../support/free-port.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, busyboxEntries, everyFileType } from '../support/image-builder.js';
import {
  makeOrdinaryUser,
  processesOfUser,
  rootlessEngine,
  withEarlyNamespaces,
  type OrdinaryUser,
} from '../support/rootless.js';
import { waitFor } from '../support/wait.js';

const IMAGE = 'test/rootless:1';
/** It tells who asks. */
const SERVER = ['httpd', '-f', '-v', '-p', '80', '-h', '/lower'];
/** The name server of the machine, and what it answers. */
const NAME_SERVER = '192.0.2.2';
const NAMED = '203.0.113.5';

interface Info {
  readonly SecurityOptions: readonly string[];
  readonly DriverStatus: readonly (readonly [string, string])[];
  readonly CgroupVersion: string;
  readonly DockerRootDir: string;
  readonly Labels: readonly string[];
}

let engine: Engine;
let user: OrdinaryUser;
let archive: Buffer;
const cleanup = new Cleanup();
const ok = (...args: string[]): Promise<string> => engineOk(engine, args);
const refusal = async (...args: string[]): Promise<string> => (await attempt(engine, args)).stderr;
const fetchFrom = (address: string): string =>
  spawnSync('curl', ['--globoff', '--silent', '--max-time', '10', `http://${address}/file`], { encoding: 'utf8' })
    .stdout;
const daemonPid = (): number => Number(readFileSync(join(user.runtimeDir, 'engine.pid'), 'utf8'));

/** Its configuration is where such a daemon looks for it. */
function configured(): EngineKind {
  const kind = rootlessEngine(user);
  return {
    ...kind,
    command(dir, socketPath) {
      const file = join(dir, '.config', 'engine', 'daemon.json');
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, JSON.stringify({ labels: ['read=yes'], 'live-restore': true }));
      return kind.command(dir, socketPath);
    },
  };
}

before(async () => {
  const dir = mkdtempSync(join(tmpdir(), 'ordinary-'));
  chmodSync(dir, 0o755);
  user = makeOrdinaryUser(dir);
  writeFileSync('/etc/resolv.conf', `nameserver ${NAME_SERVER}\n`);
  engine = await Engine.start(configured());
  cleanup.add(() => engine.close());
  const layers = [
    buildLayer(busyboxEntries()),
    buildLayer([...everyFileType(), { path: 'lower/file', content: 'of the image\n', uid: 1000, gid: 65_535 }]),
  ];
  archive = archiveOf(oldArchive(buildImage({ layers }), [IMAGE]));
  await load(engine, archive);
});
after(() => cleanup.run());

test('it is the daemon of the user, with the places of the user', async () => {
  const info = await callJson<Info>(engine.socketPath, 'GET', '/info');
  assert.ok(info.SecurityOptions.includes('name=rootless'), info.SecurityOptions.join());
  assert.equal(info.DockerRootDir, join(engine.dir, '.local/share/engine'));
  assert.deepEqual(info.Labels, ['read=yes']);
  assert.equal(Object.fromEntries(info.DriverStatus)['userxattr'], 'true');
  const socket = lstatSync(join(user.runtimeDir, 'engine.sock'));
  assert.deepEqual([socket.uid, socket.gid, socket.mode & 0o777], [user.uid, user.uid, 0o660]);
  assert.equal(statSync(`/proc/${daemonPid()}`).uid, user.uid);
});

test('containers run, are looked into, and become images without what they removed', async () => {
  assert.equal(await ok('run', '--rm', IMAGE, 'id', '-u'), '0');
  assert.equal(await ok('run', '--rm', IMAGE, 'stat', '-c', '%u:%g', '/lower/file'), '1000:65535');
  // The daemon's root may give this score to no process, and container's root may open these.
  await ok('run', '--rm', '--oom-score-adj=-500', IMAGE, 'sh', '-c', 'echo x >/dev/null && head -c1 /dev/urandom');
  await ok('run', '-d', '--name', 'worker', IMAGE, 'sh', '-c', 'rm -r /lower; mkdir /lower; echo done; sleep 1000');
  await waitFor('its log', async () => (await ok('logs', 'worker')) === 'done');
  assert.equal(await ok('exec', 'worker', 'ls', '/lower'), '');
  assert.match(await ok('top', 'worker', '-o', 'pid,args'), /^PID +COMMAND\n\d+ +sleep 1000$/);
  assert.match(await ok('diff', 'worker'), /^D \/lower$/m);
  await ok('commit', 'worker', 'test/worker:1');
  assert.equal(await ok('run', '--rm', 'test/worker:1', 'ls', '/lower'), '');
  await ok('rm', '-f', 'worker');
});

test('volumes and files of the user are those of root in the container', async () => {
  const file = join(engine.dir, 'own');
  writeFileSync(file, '');
  chownSync(file, user.uid, user.uid);
  assert.equal(await ok('run', '--rm', '-v', `${file}:/own`, IMAGE, 'stat', '-c', '%u', '/own'), '0');
  await ok('run', '--rm', '-v', 'kept:/v', IMAGE, 'touch', '/v/made');
  assert.equal(await ok('run', '--rm', '-v', 'kept:/v', IMAGE, 'ls', '/v'), 'made');
  await ok('volume', 'rm', 'kept');
});

test('namespaces of the machine are those that the user has', async () => {
  assert.match(await ok('run', '--rm', '--pid=host', IMAGE, 'ls', '/proc'), new RegExp(`^${daemonPid()}$`, 'm'));
  await ok('run', '--rm', '--ipc=host', IMAGE, 'true');
  assert.match(await ok('run', '--rm', '--network=host', IMAGE, 'ip', 'address'), /tap0/);
  await ok('run', '--rm', '--privileged', IMAGE, 'sh', '-c', 'mkdir /m && mount -t tmpfs x /m');
});

test('containers of a network of their own find each other', async () => {
  await ok('network', 'create', 'own');
  await ok('run', '-d', '--name', 'server', '--network', 'own', IMAGE, ...SERVER);
  const fetched = ['run', '--rm', '--network', 'own', IMAGE, 'wget', '-q', '-O', '-', 'http://server/file'];
  await waitFor('the server', async () => (await attempt(engine, fetched)).stdout === 'of the image\n');
  await ok('rm', '-f', 'server');
  await ok('network', 'rm', 'own');
});

/** Answers each question for an address with `NAMED`, and each other one with nothing (RFC 1035, 4.1). */
async function startNameServer(): Promise<Socket> {
  const socket = createSocket('udp4');
  socket.on('message', (question, { port, address }) => {
    const isForAddress = question.includes(Buffer.from([0, 1, 0, 1]), 12);
    const answer = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...NAMED.split('.').map(Number)]);
    // Its counts: one question, as many answers, nothing else.
    const head = Buffer.from([0x81, 0x80, 0, 1, 0, isForAddress ? 1 : 0, 0, 0, 0, 0]);
    const asked = question.subarray(12, question.indexOf(0, 12) + 5);
    socket.send(
      Buffer.concat([question.subarray(0, 2), head, asked, ...(isForAddress ? [answer] : [])]),
      port,
      address,
    );
  });
  socket.bind(53, NAME_SERVER);
  await once(socket, 'listening');
  return socket;
}

/** Containers ask the machine's name server, and reach nothing that listens on the machine's loopback address. */
async function assertOutside(of: Engine): Promise<void> {
  const names = await startNameServer();
  let isReached = false;
  const server = createServer((connection) => {
    isReached = true;
    connection.destroy();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  try {
    assert.match(await engineOk(of, ['run', '--rm', IMAGE, 'nslookup', 'some.example']), new RegExp(NAMED));
    const tries = ['127.0.0.1', '10.0.2.2']
      .map((address) => `timeout 3 wget -O - http://${address}:${port}/`)
      .join('; ');
    await engineOk(of, ['run', '--rm', '--network', 'host', IMAGE, 'sh', '-c', `${tries}; true`]);
    assert.equal(isReached, false);
  } finally {
    names.close();
    server.close();
  }
}

/** Asks a container's server, by a port that was published, until it answers; it sees its gateway ask. */
async function assertPublished(of: Engine, name: string, addresses: readonly string[]): Promise<void> {
  for (const address of addresses) await waitFor(address, () => fetchFrom(address) === 'of the image\n');
  const gateway = await engineOk(of, ['inspect', '-f', '{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}', name]);
  const asked = new RegExp(`^\\[::ffff:${gateway}\\]:\\d+:`, 'm');
  await waitFor('the log of who asked', async () => asked.test((await docker(of, ['logs', name])).stderr));
}

test('names of the machine are found, its loopback address is out of reach', () => assertOutside(engine));

test('published ports are those of the machine', async () => {
  const port = await freePort();
  await ok('run', '-d', '--name', 'server', '-p', `${port}:80`, '-p', '127.0.0.1::80', IMAGE, ...SERVER);
  const chosen = (await ok('port', 'server', '80')).split('\n').at(-1) ?? '';
  await assertPublished(engine, 'server', [`127.0.0.1:${port}`, `192.0.2.2:${port}`, `[::1]:${port}`, chosen]);
  assert.match(await refusal('run', '-p', `${port}:1`, IMAGE, 'true'), /failed: port is already allocated/);
  await ok('rm', '-f', 'server');
  await waitFor('the port to be closed', () => fetchFrom(`127.0.0.1:${port}`) === '');
  await ok('run', '--rm', '-p', `${port}:80`, IMAGE, 'true');
});

/** Sends each datagram back. */
const ECHO =
  "const s = require('node:dgram').createSocket('udp4'); s.on('message', (m, { port, address }) => " +
  's.send(m, port, address)); s.bind(7)';

test('datagrams of the machine reach a container, and its answers come back', async () => {
  const port = await freePort();
  await ok('run', '-d', '--name', 'echo', '-p', `${port}:7/udp`, IMAGE, 'sleep', '6000');
  const pid = await ok('inspect', '-f', '{{.State.Pid}}', 'echo');
  const server = spawn('nsenter', ['--target', pid, '--net', process.execPath, '-e', ECHO], { stdio: 'inherit' });
  const socket = createSocket('udp4');
  try {
    let answer = '';
    socket.on('message', (message) => (answer = message.toString()));
    // A datagram that comes before the program listens is lost.
    await waitFor('the answer', () => {
      if (answer === '') socket.send('heard', port, '127.0.0.1');
      return answer === 'heard';
    });
  } finally {
    socket.close();
    server.kill();
    await ok('rm', '-f', 'echo');
  }
});

const skip = buildxPlugins() === undefined && 'needs buildx: node scripts/peers.mjs';

test('buildx builds: steps have a network, and files the owners that they say', { skip }, async () => {
  const buildx = new Buildx(join(engine.dir, 'work'), engine.host);
  buildx.write('ctx/file', 'of the context');
  buildx.write(
    'ctx/Dockerfile',
    `FROM ${IMAGE}\nCOPY --chown=3:4 file /copied\n` +
      'RUN --mount=type=cache,target=/k --mount=target=/c cat /c/file && ls /sys/class/net && touch /k/x /made && ' +
      'chown 5:6 /made\n',
  );
  await buildx.ok(['build', '--load', '-t', 'test/built:1', '.'], { in: 'ctx' });
  assert.equal(await ok('run', '--rm', 'test/built:1', 'stat', '-c', '%u:%g', '/copied', '/made'), '3:4\n5:6');
  await ok('rmi', 'test/built:1');
});

test('a port that the machine does not give is refused with the reason', async () => {
  const taken = createServer().listen(0, '0.0.0.0');
  await once(taken, 'listening');
  const { port } = taken.address() as { port: number };
  assert.match(
    await refusal('run', '-p', `${port}:80`, IMAGE, 'true'),
    new RegExp(`Bind for 0\\.0\\.0\\.0:${port} failed: port is already allocated`),
  );
  taken.close();
  assert.match(await refusal('run', '-p', '80:80', IMAGE, 'true'), /cannot expose privileged port 80, .*unprivileged/);
  assert.match(await refusal('run', '-p', '203.0.113.9:8080:80', IMAGE, 'true'), /cannot assign requested address/);
  assert.match(await refusal('run', '-p', '8080:80/sctp', IMAGE, 'true'), /cannot publish sctp ports/);
});

test('an image with an id that the user has not is refused with the id', async () => {
  const layers = [buildLayer([{ path: 'far', content: 'x', uid: 65_537 }])];
  const { text } = await call(engine.socketPath, 'POST', '/images/load', {
    body: archiveOf(oldArchive(buildImage({ layers }), ['test/far:1'])),
  });
  assert.match(text, /Container ID 65537 cannot be mapped to a host ID/);
});

test('limits that nobody keeps are refused', async (t) => {
  const { CgroupVersion } = await callJson<Info>(engine.socketPath, 'GET', '/info');
  if (CgroupVersion === '2') {
    t.skip('this machine can delegate control groups');
    return;
  }
  for (const [flag, field] of [
    ['--memory=64m', 'Memory'],
    ['--cpus=1', 'NanoCpus'],
    ['--pids-limit=9', 'PidsLimit'],
  ] as const)
    assert.match(
      await refusal('run', flag, IMAGE, 'true'),
      new RegExp(`${field} cannot be kept by a rootless daemon:`),
    );
  await ok('run', '-d', '--name', 'counted', IMAGE, 'sleep', '1000');
  assert.match(await ok('stats', '--no-stream', '--format', '{{.MemUsage}}', 'counted'), /^0B \/ 0B$/);
  await ok('rm', '-f', 'counted');
});

test('containers and their ports outlive a daemon that was killed', async () => {
  const [kept, lost] = [await freePort(), await freePort()];
  await ok('run', '-d', '--name', 'kept', '-p', `${kept}:80`, IMAGE, ...SERVER);
  await ok('run', '-d', '--name', 'lost', '-p', `${lost}:80`, IMAGE, ...SERVER);
  const waits = ['sh', '-c', 'until [ -e /home/go ]; do sleep 0.1; done; echo said'];
  await ok('run', '-d', '--name', 'talker', '-v', `${engine.dir}:/home`, IMAGE, ...waits);
  const pidOf = async (name: string): Promise<number> => Number(await ok('inspect', '-f', '{{.State.Pid}}', name));
  const [init, talker] = [await pidOf('lost'), await pidOf('talker')];
  process.kill(daemonPid(), 'SIGKILL');
  // RootlessKit ends with the status of the daemon, or with 1.
  assert.notEqual(await engine.stop(), 0);
  await waitFor('the port', () => fetchFrom(`127.0.0.1:${kept}`) === 'of the image\n');
  process.kill(init, 'SIGKILL');
  writeFileSync(join(engine.dir, 'go'), '');
  await waitFor('the talker to end', () => !existsSync(`/proc/${talker}/root`));
  await engine.start();
  assert.equal(await ok('logs', 'talker'), 'said');
  assert.equal(await ok('inspect', '--format', '{{.State.Running}}', 'kept', 'lost'), 'true\nfalse');
  assert.equal(await ok('exec', 'kept', 'cat', '/lower/file'), 'of the image');
  assert.equal(fetchFrom(`127.0.0.1:${kept}`), 'of the image\n');
  // Nobody listens there any more, so others may.
  const other = createServer().listen(lost, '0.0.0.0');
  await once(other, 'listening');
  other.close();
  // A stop with live-restore leaves the container to the next daemon, too.
  assert.equal(await engine.stop(), 0);
  assert.equal(fetchFrom(`127.0.0.1:${kept}`), 'of the image\n');
  await engine.start();
  await ok('rm', '-f', 'kept', 'lost', 'talker');
  assert.equal(fetchFrom(`127.0.0.1:${kept}`), '');
});

test('nothing of the user runs when the last daemon without containers has ended', async () => {
  await removeContainers(engine);
  assert.equal(await engine.stop(), 0);
  await waitFor(
    () => processesOfUser(user).join('\n'),
    () => processesOfUser(user).length === 0,
  );
});

test('with fuse-overlayfs, images and what containers remove are the same', async (t) => {
  const other = await Engine.start(
    rootlessEngine(user, ['--storage-driver', 'fuse-overlayfs'], [withEarlyNamespaces(user)]),
  );
  t.after(() => other.close());
  await load(other, archive);
  const run = (...args: string[]): Promise<string> => engineOk(other, ['run', ...args]);
  assert.equal(await run('--rm', IMAGE, 'stat', '-c', '%u:%g', '/lower/file'), '1000:65535');
  await run('--name', 'worker', IMAGE, 'sh', '-c', 'rm -r /lower /bin/wget; mkdir /lower');
  assert.match(await engineOk(other, ['diff', 'worker']), /^D \/lower$/m);
  await engineOk(other, ['commit', 'worker', 'test/worker:1']);
  assert.equal(await run('--rm', 'test/worker:1', 'sh', '-c', 'ls /lower; test ! -e /bin/wget'), '');
  await engineOk(other, ['rm', 'worker']);
});

test('pasta makes the same network', async (t) => {
  // Its versions before 2024 take no machine without one.
  execFileSync('ip', ['route', 'add', 'default', 'via', '192.0.2.1']);
  t.after(() => execFileSync('ip', ['route', 'del', 'default']));
  const other = await Engine.start(rootlessEngine(user, [], ['ENGINED_ROOTLESS_NET=pasta']));
  t.after(() => other.close());
  await load(other, archive);
  await assertOutside(other);
  const port = await freePort();
  const pasta = readFileSync(join(user.runtimeDir, 'engine-rootlesskit', 'pasta.pid'), 'utf8').trim();
  assert.match(readFileSync(`/proc/${pasta}/cmdline`, 'utf8'), /pasta/);
  await engineOk(other, ['run', '-d', '--name', 'server', '-p', `${port}:80`, IMAGE, ...SERVER]);
  await assertPublished(other, 'server', [`127.0.0.1:${port}`, `192.0.2.2:${port}`, `[::1]:${port}`]);
  await engineOk(other, ['rm', '-f', 'server']);
  assert.equal(await other.stop(), 0);
  await waitFor(
    () => processesOfUser(user).join('\n'),
    () => processesOfUser(user).length === 0,
  );
});

test('what is missing is named, with what mends it', () => {
  const bare = mkdtempSync(join(tmpdir(), 'bare-'));
  chmodSync(bare, 0o755);
  for (const name of ['id', 'awk', 'cat', 'grep', 'unshare', 'true'])
    symlinkSync(execFileSync('which', [name], { encoding: 'utf8' }).trim(), join(bare, name));
  for (const file of ['/etc/subuid', '/etc/subgid']) writeFileSync(file, 'somebody:1:70000\nordinary:1:1000\n');
  const command = ['env', '-u', 'XDG_RUNTIME_DIR', `PATH=${bare}`, '/bin/sh', user.script, '--check'];
  const [program = '', ...args] = user.as(engine.dir, ...command);
  const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  assert.equal(status, 1);
  for (const said of [
    'the program rootlesskit is missing\n  as root: apt-get install rootlesskit',
    'the program newuidmap is missing\n  as root: apt-get install uidmap',
    'ordinary has fewer than 65536 ids in /etc/subuid\n  as root: usermod --add-subuids 100000-165535 ordinary',
    'ordinary has fewer than 65536 ids in /etc/subgid\n  as root: usermod --add-subgids 100000-165535 ordinary',
    'there is no program for the network of containers\n  as root: apt-get install slirp4netns',
    'XDG_RUNTIME_DIR names no directory of the user\n  log in as ordinary, not through su or sudo',
  ])
    assert.ok(stderr.includes(said), `${said}\nis not in\n${stderr}`);
});
