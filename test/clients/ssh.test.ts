/**
 * `docker -H ssh://`: the CLI runs `ssh HOST docker system dial-stdio`, which copies between its own pipes and the
 * daemon's socket. The ssh here runs the command on this machine, so everything but the encryption is real. The same
 * file passes against the original (ENGINE_UNDER_TEST=dockerd).
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { dockerOk } from '../support/cli.js';
import { dockerCli } from '../support/dockerd.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';

/** A command that hangs is ended after this time. */
const PATIENCE_MS = 120_000;
/** More than the pipes and sockets on the way hold. */
const MUCH = 8 * 1024 * 1024;

const directory = mkdtempSync(join(tmpdir(), 'ssh-'));
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(directory, { recursive: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
  // As a server does, it starts the command with an environment of its own and hands the words on to a shell.
  const ssh = `#!/bin/sh
echo "$*" >>'${directory}/calls'
while [ "$1" != elsewhere ]; do shift; done
shift
exec env -i PATH='${dirname(dockerCli())}:/usr/bin:/bin' DOCKER_HOST='${engine.host}' sh -c "$*"
`;
  writeFileSync(join(directory, 'ssh'), ssh, { mode: 0o755 });
  await dockerOk(engine, ['run', '-d', '--name', 'web', image, 'sleep', '1000']);
});
after(() => cleanup.run());

interface Result {
  readonly status: number | null;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** Runs the CLI; its input is `/dev/null` unless there is one. */
async function docker(args: readonly string[], input?: Buffer | string): Promise<Result> {
  const child = spawn(dockerCli(), ['-H', 'ssh://elsewhere', ...args], {
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    env: { PATH: `${directory}:/usr/bin:/bin`, DOCKER_CONFIG: join(directory, 'cli'), DOCKER_CLI_HINTS: 'false' },
    timeout: PATIENCE_MS,
    killSignal: 'SIGKILL',
  });
  child.stdin?.on('error', () => undefined).end(input);
  if (child.stdout === null || child.stderr === null) throw new Error('docker has no output');
  const [stdout, stderr] = await Promise.all([buffer(child.stdout), text(child.stderr), once(child, 'close')]);
  return { status: child.exitCode, stdout, stderr };
}

async function outcome(args: readonly string[], input?: string): Promise<unknown> {
  const { status, stdout, stderr } = await docker(args, input);
  return [status, stdout.toString(), stderr];
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
  assert.match(readFileSync(join(directory, 'calls'), 'utf8'), /elsewhere docker system dial-stdio\n/);
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
