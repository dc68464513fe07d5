/**
 * `docker -H ssh://` through OpenSSH: the CLI runs `ssh HOST docker system dial-stdio`, which joins its own pipes with
 * the daemon's socket. The host of engined has no CLI, but packaging/docker in its place; with the original
 * (ENGINE_UNDER_TEST=dockerd) it is the CLI.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Buildx } from '../support/buildx.js';
import { Cleanup } from '../support/cleanup.js';
import { dockerCli, dockerd, SHORT_LIVED } from '../support/dockerd.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { engined, isTestingDockerd } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { installCopy } from '../support/installed-copy.js';
import { GROUP_ID, startSshServer } from '../support/ssh-server.js';
import { waitFor } from '../support/wait.js';

/** A command that hangs is ended after this time. */
const PATIENCE_MS = 120_000;
/** More than the pipes and sockets on the way hold. */
const MUCH = 8 * 1024 * 1024;
/** This file is in dist/test/clients. */
const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
const GROUP = 'ssh-engine';

const directory = mkdtempSync(join(tmpdir(), 'ssh-'));
const socketPath = join(directory, 'engine.sock');
/** The path of the socket is a part of the address, since the daemon of the test has another one than the default. */
const HOST = `ssh://insider@elsewhere${socketPath}`;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  chmodSync(directory, 0o755);
  const bin = join(directory, 'bin');
  mkdirSync(bin);
  if (isTestingDockerd()) symlinkSync(dockerCli(), join(bin, 'docker'));
  else {
    copyFileSync(join(ROOT, 'packaging/docker'), join(bin, 'docker'));
    // Users may not read the directory of the repository.
    const { main } = installCopy(cleanup);
    chmodSync(join(main, '../../..'), 0o755);
    symlinkSync(main, join(bin, 'engined'));
  }
  const users = { group: GROUP, members: ['insider', 'confined'], others: ['outsider'] };
  const settings = ['Match User confined', `ForceCommand ${bin}/engined dial-stdio -H unix://${socketPath}`];
  const path = `${bin}:${dirname(process.execPath)}:/usr/bin:/bin`;
  await startSshServer(directory, { ...users, path, settings }, cleanup);
  const group = isTestingDockerd() ? String(GROUP_ID) : GROUP;
  const args = ['--group', group, '--host', `unix://${socketPath}`];
  ({ engine, image } = await startEngineWithImage(cleanup, isTestingDockerd() ? dockerd({ args }) : engined({ args })));
  await engineOk(engine, ['run', '-d', '--name', 'web', image, 'sleep', '1000']);
});
after(() => cleanup.run());

interface Result {
  readonly status: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

function start(args: readonly string[], host: string, input: 'ignore' | 'pipe'): ChildProcess {
  return spawn(dockerCli(), ['-H', host, ...args], {
    stdio: [input, 'pipe', 'pipe'],
    env: { ...SHORT_LIVED, PATH: '/usr/bin:/bin', DOCKER_CONFIG: join(directory, 'cli'), DOCKER_CLI_HINTS: 'false' },
    timeout: PATIENCE_MS,
    killSignal: 'SIGKILL',
  });
}

/** Runs the CLI; its input is `/dev/null` unless there is one. */
async function docker(args: readonly string[], input?: Buffer | string, host = HOST): Promise<Result> {
  const child = start(args, host, input === undefined ? 'ignore' : 'pipe');
  child.stdin?.on('error', () => undefined).end(input);
  if (child.stdout === null || child.stderr === null) throw new Error('docker has no output');
  const [stdout, stderr] = await Promise.all([buffer(child.stdout), text(child.stderr), once(child, 'close')]);
  return { status: child.exitCode, stdout, stderr };
}

async function outcome(args: readonly string[], input?: string): Promise<unknown> {
  const { status, stdout, stderr } = await docker(args, input);
  return [status, stdout.toString(), stderr];
}

/** Command lines of all processes that join a connection with the socket. */
function dials(): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
        return words.includes('dial-stdio') && words.includes(socketPath) ? [words] : [];
      } catch {
        return []; // It has ended.
      }
    });
}

test('input, its end, output and exit status pass through ssh', async () => {
  const reader = ['sh', '-c', 'cat; echo the end >&2; exit 3'];
  for (const args of [
    ['run', '--rm', '-i', image, ...reader],
    ['exec', '-i', 'web', ...reader],
  ]) {
    assert.deepEqual(await outcome(args), [3, '', 'the end\n'], args[0]);
    assert.deepEqual(await outcome(args, 'piped\n'), [3, 'piped\n', 'the end\n'], args[0]);
  }
  assert.deepEqual(await outcome(['ps', '--format', '{{.Names}}']), [0, 'web\n', '']);
});

test('start and attach', async () => {
  await docker(['create', '-i', '--name', 'again', image, 'sh', '-c', 'read word; echo got $word; exit 4']);
  assert.deepEqual(await outcome(['start', '-ai', 'again'], 'one\n'), [4, 'got one\n', '']);
  assert.deepEqual(await outcome(['start', '-ai', 'again']), [4, 'got\n', '']);
  await docker(['start', 'again']);
  // Whether its output still comes after the end of the input is a race, in the original too.
  assert.equal((await docker(['attach', 'again'], 'two\n')).status, 4);
  assert.deepEqual(await outcome(['logs', '-f', 'again']), [0, 'got one\ngot\ngot two\n', '']);
});

test('much goes both ways at once, by exec and by cp', async () => {
  const much = randomBytes(MUCH);
  const echoed = await docker(['exec', '-i', 'web', 'cat'], much);
  assert.ok(echoed.status === 0 && echoed.stdout.equals(much), `${echoed.stdout.length} bytes, ${echoed.stderr}`);
  writeFileSync(join(directory, 'given'), much);
  assert.equal((await docker(['cp', join(directory, 'given'), 'web:/file'])).status, 0);
  assert.equal((await docker(['cp', 'web:/file', join(directory, 'returned')])).status, 0);
  assert.ok(readFileSync(join(directory, 'returned')).equals(much));
});

test('buildx builds through ssh', async () => {
  const buildx = new Buildx(join(directory, 'build'), HOST);
  buildx.write('Dockerfile', `FROM ${image}\nCOPY Dockerfile /copied\nRUN test -s /copied\n`);
  await buildx.ok(['build', '--load', '-t', 'built', '.']);
  assert.deepEqual(await outcome(['run', '--rm', 'built', 'wc', '-l', '/copied']), [0, '3 /copied\n', '']);
});

test('the group of the socket decides who gets in', async () => {
  const { status, stderr } = await docker(['ps'], undefined, HOST.replace('insider', 'outsider'));
  assert.equal(status, 1);
  // The CLI has a text of its own for all failures of that kind.
  assert.match(stderr, /^Cannot connect to the Docker daemon at http:\/\/docker\.example\.com\./);
  const remote = ['docker', `--host=unix://${socketPath}`, 'system', 'dial-stdio'];
  const { stderr: reason } = spawnSync('ssh', ['-l', 'outsider', 'elsewhere', ...remote], { encoding: 'utf8' });
  assert.equal(
    reason,
    `failed to open the raw stream connection: dial unix ${socketPath}: connect: permission denied\n`,
  );
});

test(
  'a user with a forced command reaches the daemon, and no other command',
  { skip: isTestingDockerd() },
  async () => {
    const listed = await docker(['ps', '--format', '{{.Names}}'], undefined, 'ssh://confined@elsewhere');
    assert.deepEqual([listed.status, listed.stdout.toString(), listed.stderr], [0, 'web\n', '']);
    const request = 'GET /_ping HTTP/1.1\r\nhost: elsewhere\r\nconnection: close\r\n\r\n';
    const said = spawnSync('ssh', ['-l', 'confined', 'elsewhere', 'id'], { input: request, encoding: 'utf8' });
    assert.match(said.stdout, /^HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\nOK$/);
  },
);

// The CLI in the place of ours leaves this to the daemon.
test('nothing stays on the remote side when clients die', { skip: isTestingDockerd() }, async () => {
  const talker = ['sh', '-c', 'echo begun; exec sleep 1000'];
  await engineOk(engine, ['run', '-d', '--name', 'talker', image, ...talker]);
  for (const args of [
    ['logs', '-f', 'talker'],
    ['events', '--since', '1'],
    ['exec', '-i', 'web', ...talker],
    ['stats', 'web'],
  ]) {
    const what = `docker ${args.join(' ')}`;
    const gone = (): boolean => dials().length === 0;
    await waitFor(() => `earlier connections to end, before ${what}: ${dials().join('; ')}`, gone);
    const child = start(args, HOST, 'pipe');
    let said = '';
    child.stdout?.on('data', (piece: Buffer) => (said += piece.toString()));
    await waitFor(`${what} to say something`, () => {
      assert.equal(child.exitCode, null, `${what} has ended`);
      return said !== '';
    });
    assert.ok(!gone());
    child.kill('SIGKILL');
    await once(child, 'exit');
    await waitFor(() => `the remote side of ${what} to end: ${dials().join('; ')}`, gone);
  }
});
