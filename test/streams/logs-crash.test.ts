/** Logs as daemons come and go: their defaults, and containers that outlive them. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { dockerCli } from '../support/dockerd.js';
import { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { streamReceiver } from '../support/log-receivers.js';
import { waitFor } from '../support/wait.js';
import { withImage } from '../support/seed.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
});

after(() => cleanup.run());

test('a killed daemon goes on with a remote log, also without its server; the local copy repeats no line', async () => {
  const receiver = await streamReceiver();
  cleanup.add(() => receiver.close());
  const numbers = (text: string): number[] => [...text.matchAll(/line (\d+)\n/g)].map(([, number]) => Number(number));
  const script = 'i=0; while true; do echo line $i; i=$((i+1)); sleep 0.05; done';
  await engineOk(engine, [
    'run',
    '-d',
    '--name',
    'steady',
    '--log-driver',
    'syslog',
    '--log-opt',
    `syslog-address=tcp://127.0.0.1:${receiver.port}`,
    image,
    'sh',
    '-c',
    script,
  ]);
  await waitFor('some lines', () => numbers(receiver.received().toString()).length > 5);
  await engine.stop('SIGKILL');
  await receiver.leave();
  await engine.start();
  assert.equal(await engineOk(engine, ['inspect', '-f', '{{.State.Status}}', 'steady']), 'running');
  await waitFor('the daemon to tell', () => engine.log.includes('the remote log cannot be opened again yet'));
  const before = numbers(receiver.received().toString()).length;
  await receiver.listen();
  await waitFor('further lines', () => numbers(receiver.received().toString()).length > before + 10);
  await engineOk(engine, ['kill', 'steady']);
  const copy = numbers((await docker(engine, ['logs', 'steady'])).stdout + '\n');
  // Lines that were on their way from the pipe to the file when the daemon was killed are lost; docs/logs.md says so.
  const gaps = copy.flatMap((number, at) => (number === (copy[at - 1] ?? -1) + 1 ? [] : [at]));
  assert.ok(gaps.length <= 1, `gaps or repeats before the entries ${gaps.join(' and ')} of ${copy.join(' ')}`);
  for (const at of gaps) {
    const missing = (copy[at] ?? 0) - (copy[at - 1] ?? -1) - 1;
    assert.ok(missing > 0 && missing <= 20, `${missing} lines are missing before line ${copy[at]}`);
  }
  // The server misses what was on its way to it when both ended, and nothing that came later.
  const remote = numbers(receiver.received().toString());
  const later = remote.slice(before);
  const first = later[0] ?? Number.NaN;
  assert.deepEqual(
    later,
    Array.from({ length: later.length }, (_, i) => first + i),
  );
  assert.ok(first - (remote[before - 1] ?? Number.NaN) <= 20, `lines ${remote[before - 1]} to ${first} are missing`);
  await engineOk(engine, ['rm', 'steady']);
});

test('a default log driver that serves no container ends the start; the local copy has its defaults', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'logs-defaults-'));
  try {
    const [program = '', ...args] = engined({
      args: ['--log-driver', 'gelf', '--log-opt', 'gelf-compression-type=none'],
    }).command(dir, join(dir, 's'));
    const { status, stderr } = spawnSync(program, args, { encoding: 'utf8' });
    assert.equal(status, 1, stderr);
    assert.match(stderr, /failed to set log opts: gelf-address is a required parameter/);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
  const kind = engined({ args: ['--log-opt', 'max-size=1m', '--log-opt', 'cache-max-size=2m'] });
  const other = await Engine.start(await withImage(kind));
  try {
    const config = async (...flags: readonly string[]): Promise<unknown> =>
      JSON.parse(
        await engineOk(other, [
          'inspect',
          '-f',
          '{{json .HostConfig.LogConfig}}',
          await engineOk(other, ['create', ...flags, image, 'true']),
        ]),
      );
    assert.deepEqual(await config(), { Type: 'json-file', Config: { 'max-size': '1m', 'cache-max-size': '2m' } });
    assert.deepEqual(await config('--log-driver', 'journald'), {
      Type: 'journald',
      Config: { 'cache-max-size': '2m' },
    });
  } finally {
    await other.close();
  }
});

test('what an attached client has read is in the log after a kill of the daemon, also of a flood', async () => {
  for (let round = 0; round < 2; round++) {
    await engineOk(engine, ['create', '--name', 'flood', '--log-opt', 'max-size=1g', image, 'seq', '1', '999999999']);
    const client = spawn(dockerCli(), ['-H', `unix://${engine.socketPath}`, 'start', '-a', 'flood'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    let bytes = 0;
    let tail = '';
    client.stdout.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      tail = (tail + chunk.toString()).slice(-100);
    });
    const left = once(client, 'close');
    await waitFor('a flood', () => bytes > 4 << 20, 60_000, 1);
    await engine.stop('SIGKILL');
    await left;
    await engine.start();
    await engineOk(engine, ['kill', 'flood']);
    const seen = Number(tail.slice(0, tail.lastIndexOf('\n')).split('\n').at(-1));
    const path = await engineOk(engine, ['inspect', '-f', '{{.LogPath}}', 'flood']);
    const lines = execFileSync('grep', ['-c', '-m', `${seen}`, '', path], { encoding: 'utf8' });
    assert.equal(Number(lines), seen, 'the log is too short');
    const line = execFileSync('sed', ['-n', `${seen}{p;q}`, path], { encoding: 'utf8' });
    assert.equal((JSON.parse(line) as { log: string }).log, `${seen}\n`);
    await engineOk(engine, ['rm', 'flood']);
  }
});
