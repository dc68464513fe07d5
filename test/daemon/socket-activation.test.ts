/** Sockets from a service manager, and what the daemon tells it. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, test } from 'node:test';
import { closeFd } from '../../src/sys/files/fd.js';
import { listenOnTcp, listenOnUnix } from '../../src/sys/net/listen-socket.js';
import { Authority, tlsFlags } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { freePort } from '../support/free-port.js';
import { call, callJson, RawConnection } from '../support/http.js';
import { receiveNotifications } from '../support/notifications.js';
import { processesOf } from '../support/leftovers.js';
import { waitFor } from '../support/wait.js';

/** This file is in dist/test. */
const UNITS = fileURLToPath(new URL('../../../packaging/systemd/', import.meta.url));
const cleanup = new Cleanup();
let dir: string;
let registry: SeededRegistry;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'activation-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
});

after(() => cleanup.run());

/** engined started by a command in front of it, with `hosts` instead of its own socket. */
function behind(
  wrapper: (socketPath: string) => readonly string[],
  hosts: readonly string[],
  env: NodeJS.ProcessEnv = {},
): EngineKind {
  const plain = engined();
  return {
    ...plain,
    env: { ...plain.env, ...env },
    command: (home, socketPath) => {
      const [program = '', ...args] = plain.command(home, socketPath);
      const at = args.indexOf('--host');
      return [...wrapper(socketPath), program, ...args.toSpliced(at, 2), ...hosts.flatMap((host) => ['-H', host])];
    },
  };
}

/** The socket file is the service manager's, so the daemon leaves it. */
async function closeActivated(engine: Engine): Promise<void> {
  assert.equal(await engine.stop(), 0);
  assert.ok(existsSync(engine.socketPath), 'the socket of the service manager is still there');
  await rm(engine.socketPath);
  await engine.close();
}

test('systemd-socket-activate: unix and tcp at once, an address of our own besides, nothing inherited', async () => {
  const port = await freePort();
  const own = join(dir, 'own.sock');
  const engine = await Engine.start(
    behind(
      (path) => ['systemd-socket-activate', '-l', path, '-l', `127.0.0.1:${port}`, '--fdname=engine:remote'],
      ['fd://', `unix://${own}`],
    ),
  );
  try {
    assert.equal(await (await fetch(`http://127.0.0.1:${port}/_ping`)).text(), 'OK');
    assert.equal((await call(own, 'GET', '/_ping')).text, 'OK');
    await engineOk(engine, ['pull', '-q', registry.reference]);
    const id = await engineOk(engine, ['run', '-d', registry.reference, 'sleep', '1000']);
    assert.equal(await engineOk(engine, ['exec', id, 'sh', '-c', 'env | grep -c LISTEN_ || true']), '0');
    const inode = (pid: number | string, fd: string): string => readlinkSync(`/proc/${pid}/fd/${fd}`);
    const sockets = ['3', '4'].map((fd) => inode(engine.pid, fd));
    for (const { pid, command } of processesOf(engine.dir)) {
      if (pid === engine.pid || !existsSync(`/proc/${pid}/fd`)) continue;
      assert.doesNotMatch(readFileSync(`/proc/${pid}/environ`, 'utf8'), /LISTEN_(FDS|PID|FDNAMES)=/, command);
      for (const fd of readdirSync(`/proc/${pid}/fd`))
        assert.ok(!sockets.includes(inode(pid, fd)), `${command} has a listening socket`);
    }
    await engineOk(engine, ['rm', '-f', id]);
  } finally {
    await closeActivated(engine);
  }
  assert.ok(!existsSync(own));
});

/** Passes descriptors 3 and on as the service manager does, whose variables name the process that gets them. */
function activation(names: readonly string[]): string[] {
  return ['sh', '-c', `LISTEN_PID=$$ LISTEN_FDS=${names.length} LISTEN_FDNAMES=${names.join(':')} exec "$@"`, 'sh'];
}

interface Outcome {
  readonly code: number | null;
  readonly output: string;
}

/** Starts the daemon with sockets of ours; gives it up when it ends by itself or when `whileServing` is through. */
async function withSockets(
  names: readonly string[],
  hosts: readonly string[],
  fds: readonly number[],
  whileServing: () => Promise<void>,
  flags: readonly string[] = [],
): Promise<Outcome> {
  const home = await mkdtemp(join(dir, 'home-'));
  const [program = '', ...args] = behind(() => activation(names), hosts).command(home, join(home, 'unused.sock'));
  const child = spawn(program, [...args, ...flags], { stdio: ['ignore', 'ignore', 'pipe', ...fds] });
  let output = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (output += text));
  const ended = once(child, 'close') as Promise<[number | null]>;
  try {
    const early = await Promise.race([ended, waitFor('the API', () => /API listens/.test(output), 30_000)]);
    if (early === true) await whileServing();
  } finally {
    child.kill('SIGTERM');
  }
  const [code] = await ended;
  return { code, output };
}

/** True when somebody accepts and answers there. */
async function isServed(port: number): Promise<boolean> {
  return (
    (await fetch(`http://127.0.0.1:${port}/_ping`, { signal: AbortSignal.timeout(1500) }).catch(() => undefined))
      ?.status === 200
  );
}

test('fd:// takes all sockets, one by its number, or those of a name; the others are let go', async () => {
  const cases: [hosts: string[], served: boolean[]][] = [
    [['fd://'], [true, true, true]],
    [['fd://*'], [true, true, true]],
    [['fd://4'], [false, true, false]],
    [['fd://b'], [false, true, true]],
    [
      ['fd://3', 'fd://a', 'fd://5'],
      [true, false, true],
    ],
  ];
  for (const [hosts, expected] of cases) {
    const sockets = await Promise.all([0, 1, 2].map(() => listenOnTcp('127.0.0.1', 0)));
    const outcome = await withSockets(
      ['a', 'b', 'b'],
      hosts,
      sockets.map(({ fd }) => fd),
      async () => {
        assert.deepEqual(await Promise.all(sockets.map(({ port }) => isServed(port))), expected, hosts.join(' '));
      },
    );
    for (const { fd } of sockets) closeFd(fd);
    assert.equal(outcome.code, 0, outcome.output);
  }
});

test('tcp sockets of the service manager get TLS when that is on, unix sockets do not', async () => {
  const ca = new Authority(dir, 'ca');
  const [server, client] = [ca.issueServer(), ca.issue('alice')];
  const path = join(dir, 'beside-tls.sock');
  const unix = listenOnUnix(path, 0o600);
  const { fd, port } = await listenOnTcp('127.0.0.1', 0);
  const curl = (...args: readonly string[]): string => {
    const { stdout, status } = spawnSync('curl', ['-sS', '--max-time', '20', '--cacert', ca.cert, ...args], {
      encoding: 'utf8',
    });
    return status === 0 ? stdout : `exit ${status}`;
  };
  const flags = tlsFlags(ca.cert, server);
  const { code, output } = await withSockets(
    ['local', 'remote'],
    ['fd://'],
    [unix, fd],
    async () => {
      assert.equal((await call(path, 'GET', '/_ping')).text, 'OK');
      assert.equal(curl('--cert', client.cert, '--key', client.key, `https://127.0.0.1:${port}/_ping`), 'OK');
      assert.match(curl(`https://127.0.0.1:${port}/_ping`), /^exit/);
      assert.match(curl(`http://127.0.0.1:${port}/_ping`), /^exit/);
    },
    flags,
  );
  assert.equal(code, 0, output);
  for (const socket of [unix, fd]) closeFd(socket);
});

test('requests that are sent while the daemon is down are answered by the next one', async () => {
  const path = join(dir, 'queue.sock');
  const fd = listenOnUnix(path, 0o600);
  try {
    for (let round = 0; round < 2; round++) {
      const waiting = await Promise.all([1, 2, 3].map(() => RawConnection.open(path)));
      for (const client of waiting) client.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
      const outcome = await withSockets(['engine'], ['fd://'], [fd], async () => {
        for (const client of waiting) assert.match(await client.readThrough('\r\n\r\nOK'), /^HTTP\/1\.1 200/);
      });
      assert.equal(outcome.code, 0, outcome.output);
      for (const client of waiting) client.close();
      assert.ok(existsSync(path));
    }
  } finally {
    closeFd(fd);
  }
});

test('without sockets, with wrong numbers or names, or for somebody else, the start fails and says why', async () => {
  const { fd } = await listenOnTcp('127.0.0.1', 0);
  const connected = connect({ port: await openPort(), host: '127.0.0.1' });
  await once(connected, 'connect');
  const { _handle: handle } = connected as unknown as { readonly _handle: { readonly fd: number } };
  const none =
    'failed to load listeners: no sockets found via socket activation: make sure the service was started by systemd';
  const cases: [names: string[], hosts: string[], fds: number[], message: string][] = [
    [[], ['fd://'], [], none],
    [[], ['fd://', `unix://${dir}/beside.sock`], [], none],
    [
      ['a'],
      ['fd://4'],
      [fd],
      'failed to load listeners: too few socket activated files passed in by systemd: there is no 4, there are 3 (a)',
    ],
    [
      ['a'],
      ['fd://b'],
      [fd],
      'failed to load listeners: no socket activated file passed in by systemd has the name b: there are 3 (a)',
    ],
    [
      ['a'],
      ['fd://'],
      [handle.fd],
      'file descriptor 3 (a) of the socket activation does not listen: its socket unit needs Accept=no',
    ],
    [['a', 'b'], ['fd://'], [fd], 'file descriptor 4 (b) of the socket activation cannot be used: '],
  ];
  for (const [names, hosts, fds, message] of cases) {
    const { code, output } = await withSockets(names, hosts, fds, async () => undefined);
    assert.equal(code, 1, output);
    assert.ok(output.includes(message), output);
  }
  closeFd(fd);
  connected.destroy();
});

/** A port that takes connections until the test ends. */
async function openPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanup.add(async () => void server.close());
  return (server.address() as AddressInfo).port;
}

test('the service manager is told of start, reload, watchdog and stop, over a path or an abstract name', async () => {
  for (const address of [join(dir, 'notify.sock'), `@engined-test-${randomBytes(4).toString('hex')}`]) {
    const messages = receiveNotifications(address);
    const home = await mkdtemp(join(dir, 'notified-'));
    const config = join(home, 'notified.json');
    writeFileSync(config, '{}');
    const engine = await Engine.start(
      engined({ args: ['--config-file', config], env: { NOTIFY_SOCKET: address, WATCHDOG_USEC: '400000' } }),
    );
    try {
      const about = (pattern: RegExp): Promise<string> =>
        waitFor(
          () => `${pattern} in ${JSON.stringify(messages.all)}`,
          () => messages.all.find((message) => pattern.test(message)),
        );
      await about(/^READY=1\nSTATUS=started, serving unix:/);
      assert.match(messages.all[0] ?? '', /^STATUS=starting$/);
      await waitFor('the watchdog', () => messages.all.filter((message) => message === 'WATCHDOG=1').length > 3);
      process.kill(engine.pid, 'SIGHUP');
      const reloading = await about(/^RELOADING=1\nMONOTONIC_USEC=\d+$/);
      const at = Number(/MONOTONIC_USEC=(\d+)/.exec(reloading)?.[1]);
      assert.ok(Math.abs(at - Number(process.hrtime.bigint() / 1000n)) < 60e6, 'the monotonic clock of the system');
      await about(/^READY=1\nSTATUS=reloaded/);
      writeFileSync(config, '{"unknown-key":1}');
      process.kill(engine.pid, 'SIGHUP');
      await about(/^READY=1\nSTATUS=reload failed/);
      for (const { pid, command } of processesOf(engine.dir)) {
        if (pid !== engine.pid)
          assert.doesNotMatch(readFileSync(`/proc/${pid}/environ`, 'utf8'), /NOTIFY_SOCKET|WATCHDOG_/, command);
      }
      await engine.stop();
      await about(/^STOPPING=1/);
    } finally {
      await engine.close();
      messages.close();
    }
  }
});

test('a service manager that does not listen is no reason not to start', async () => {
  const engine = await Engine.start(engined({ env: { NOTIFY_SOCKET: join(dir, 'nobody.sock') } }));
  assert.equal((await callJson<{ ApiVersion: string }>(engine.socketPath, 'GET', '/version')).ApiVersion, '1.51');
  await engine.close();
});

test('the shipped units are valid', () => {
  const home = join(dir, 'units');
  mkdirSync(home);
  for (const name of ['engined.socket', 'engined.service']) {
    assert.ok(statSync(join(UNITS, name)).isFile());
    // Its complaints come on stderr, and nothing is good.
    const output = execFileSync('systemd-analyze', ['verify', join(UNITS, name)], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, XDG_RUNTIME_DIR: home },
    });
    assert.equal(output, '');
  }
});
