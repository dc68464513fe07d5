/** Daemons that stop at the worst instants, one after another, while a container writes: each line is logged once. */
import assert from 'node:assert/strict';
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import test, { type TestContext } from 'node:test';
import { createLogDriver } from '../../logs/drivers/log-driver.js';
import { logFixture, seededRandom } from '../../logs/log-fixture.js';
import type { StreamName } from '../../ports/logs.js';
import { makeFifo } from '../../sys/files/inode.js';
import { waitFor } from '../../../test/support/wait.js';
import { FifoOutput } from './fifo-output.js';
import { FileSpool } from './output-spool.js';

const STREAMS = ['stdout', 'stderr'] as const;
const OBSERVER = {
  written: () => undefined,
  dropped: () => assert.fail('a line was dropped'),
  damaged: () => undefined,
  readFailed: () => undefined,
  failed: () => undefined,
};

/** The pipes and the log of a container, and daemons that come and go. */
async function scene(t: TestContext, driver: string, options: Readonly<Record<string, string>>) {
  const fixture = await logFixture(t, driver);
  const { dir } = fixture;
  const writers = STREAMS.map((name) => {
    makeFifo(join(dir, name));
    // Nobody blocks, and the pipe has a writer until the end.
    return openSync(join(dir, name), constants.O_RDWR | constants.O_NONBLOCK);
  });
  t.after(() => writers.forEach((fd) => closeSync(fd)));
  const failures: unknown[] = [];
  return {
    ...fixture,
    failures,
    write: (stream: StreamName, text: string) => void writeSync(writers[STREAMS.indexOf(stream)] ?? -1, text),
    /** A daemon whose log gets pieces when the test passes them on. */
    daemon: async () => {
      const outputs = { stdout: new FifoOutput(join(dir, 'stdout')), stderr: new FifoOutput(join(dir, 'stderr')) };
      // The drivers of another daemon know nothing of the logs that this one left open.
      const log = await createLogDriver(() => OBSERVER).open({ ...fixture.container, options, isRunning: true });
      assert.ok(log.ledger);
      const spool = new FileSpool(dir, outputs, (error) => failures.push(error));
      const kill = (): void => Object.values(outputs).forEach((output) => output.destroy());
      await spool.begin(log.ledger);
      return { outputs, log, spool, kill };
    },
  };
}

/** Takes the next piece of a stream: it has left the pipe, and the log has not got it. */
async function take(output: FifoOutput): Promise<Buffer> {
  for (;;) {
    const piece = output.read() as Buffer | null;
    if (piece !== null) return piece;
    await new Promise((resolve) => output.once('readable', resolve));
  }
}

async function logged(read: () => Promise<Buffer>): Promise<string[]> {
  return (await read()).toString().split('\n').slice(0, -1);
}

for (const driver of ['json-file', 'local']) {
  test(`${driver}: what was read and not logged, or logged and not noted, is logged once`, async (t) => {
    const { write, daemon, readStopped, failures } = await scene(t, driver, {});
    const first = await daemon();
    write('stdout', 'one\ntwo\nbegin');
    write('stderr', 'red\n');
    await take(first.outputs.stdout); // It is killed before the log has anything.
    first.kill();
    const second = await daemon();
    const again = await take(second.outputs.stdout);
    assert.equal(again.toString(), 'one\ntwo\nbegin');
    second.log.write('stdout', again); // It is killed when lines are in the log, and the beginning of one is not.
    second.log.write('stderr', await take(second.outputs.stderr));
    second.kill();
    write('stdout', 'ning\n');
    const third = await daemon();
    assert.equal((await take(third.outputs.stdout)).toString(), 'begin');
    write('stderr', 'blue\n');
    assert.equal((await take(third.outputs.stderr)).toString(), 'blue\n');
    assert.deepEqual(await logged(() => readStopped({ stdout: false })), ['red']);
    assert.deepEqual(await logged(readStopped), ['one', 'two', 'red']);
    third.kill();
    assert.deepEqual(failures, []);
  });

  test(`${driver}: the beginning of a line is left to the next daemon, and is no record of its own`, async (t) => {
    const { write, daemon, readStopped } = await scene(t, driver, {});
    const first = await daemon();
    write('stdout', 'whole\nbegin');
    first.log.write('stdout', await take(first.outputs.stdout));
    await first.log.ledger?.leave();
    assert.ok(first.spool.isKeeping);
    first.kill();
    first.spool.leave();
    assert.deepEqual(await logged(readStopped), ['whole']);
    write('stdout', 'ning\n');
    const second = await daemon();
    for (const expected of ['begin', 'ning\n']) {
      const piece = await take(second.outputs.stdout);
      assert.equal(piece.toString(), expected);
      second.log.write('stdout', piece);
    }
    await second.log.close();
    second.kill();
    assert.deepEqual(await logged(readStopped), ['whole', 'beginning']);
  });

  test(`${driver}: a rotation before the end is noted, and counted when the end came before that`, async (t) => {
    const options = { 'max-size': '1k', 'max-file': '99', compress: 'true' };
    const { write, daemon, readStopped, path } = await scene(t, driver, options);
    const first = await daemon();
    for (let i = 0; i < 40; i++) {
      write('stdout', `${i}\n`);
      first.log.write('stdout', await take(first.outputs.stdout));
      await first.log.written();
    }
    first.kill();
    await waitFor('a file to be compressed', () => existsSync(`${path}.1.gz`));
    const second = await daemon();
    write('stdout', '40\n');
    assert.equal((await take(second.outputs.stdout)).toString(), '40\n');
    second.log.write('stdout', Buffer.from('40\n'));
    second.kill();
    // As a rotation does, before it notes anything.
    for (let i = 50; i > 0; i--)
      if (existsSync(`${path}.${i}.gz`)) renameSync(`${path}.${i}.gz`, `${path}.${i + 1}.gz`);
    renameSync(path, `${path}.1`);
    write('stdout', '41\n');
    const third = await daemon();
    assert.equal((await take(third.outputs.stdout)).toString(), '41\n');
    third.kill();
    assert.deepEqual(
      await logged(readStopped),
      Array.from({ length: 41 }, (_, i) => `${i}`),
    );
  });

  test(`${driver}: sixty ends at random instants, with long lines and rotations`, async (t) => {
    const seed = Date.now() % 1_000_000;
    const random = seededRandom(seed);
    const below = (count: number): number => Math.floor(random() * count);
    const options = { 'max-size': '60k', 'max-file': '99', compress: 'true' };
    const { write, daemon, readStopped, failures } = await scene(t, driver, options);
    const rest: Record<StreamName, string> = { stdout: '', stderr: '' };
    const count = { stdout: 0, stderr: 0 };
    for (let round = 0; round < 60; round++) {
      const { outputs, log, kill } = await daemon();
      for (let step = below(4); step >= 0; step--) {
        const stream = STREAMS[below(2)] ?? 'stdout';
        // A written piece ends anywhere in a line; some lines are longer than a record.
        const text = `${rest[stream]}${count[stream]++} ${stream} ${'x'.repeat(below(below(8) === 0 ? 20_000 : 60))}\n`;
        const end = below(text.length + 1);
        rest[stream] = text.slice(end);
        write(stream, text.slice(0, end));
        const name = STREAMS[below(2)] ?? 'stdout';
        // It begins to read, and has something a turn later if there is anything.
        outputs[name].read(0);
        await new Promise((resolve) => setTimeout(resolve));
        const piece = outputs[name].read() as Buffer | null;
        if (piece === null) continue;
        log.write(name, piece);
        if (below(2) === 0) await log.written();
        // The next piece has left the pipe, and the log gets it never.
        outputs[name].read(0);
        await new Promise((resolve) => setTimeout(resolve));
      }
      // All that was given to a log is written by this process.
      await log.written();
      kill();
    }
    for (const stream of STREAMS) write(stream, `${rest[stream]}end\n`);
    const { outputs, log } = await daemon();
    for (const stream of STREAMS)
      for (let tail = ''; !tail.endsWith('end\n'); tail = tail.slice(-4)) {
        const piece = await take(outputs[stream]);
        log.write(stream, piece);
        tail += piece.toString();
      }
    await log.close();
    for (const stream of STREAMS) {
      const lines = await logged(() => readStopped({ stdout: stream === 'stdout', stderr: stream === 'stderr' }));
      const numbers = lines.slice(0, -1).map((line) => Number(line.split(' ')[0]));
      assert.deepEqual(numbers, [...numbers.keys()], `seed ${seed}`);
      assert.equal(numbers.length, count[stream], `seed ${seed}`);
    }
    assert.deepEqual(failures, []);
  });
}

test('files stay small in a flood, and next to nothing is held when all is logged', async (t) => {
  const { write, daemon, dir, readStopped } = await scene(t, 'json-file', { 'max-size': '1g' });
  const { outputs, log, kill } = await daemon();
  const sizes = (): number[] => ['0', '1'].map((file) => sizeOf(join(dir, `stdout.${file}`)));
  const block = Array.from({ length: 6_000 }, (_, i) => `${i}`).join('\n');
  let largest = 0;
  outputs.stdout.on('data', (piece: Buffer) => log.write('stdout', piece));
  for (let i = 0; i < 100; i++) {
    // No piece ends with a line, so there is always something that the log has not.
    write('stdout', block);
    await new Promise((resolve) => outputs.stdout.once('data', resolve));
    await log.written();
    largest = Math.max(largest, ...sizes());
  }
  // The log tells nothing of the parts of a line.
  for (let i = 0; i < 1200; i++) {
    write('stdout', 'z'.repeat(1000));
    await new Promise((resolve) => outputs.stdout.once('data', resolve));
    largest = Math.max(largest, ...sizes());
  }
  assert.ok(largest < 1_200_000, `${largest} bytes`);
  write('stdout', `${'y'.repeat(20_000)}\n`);
  await waitFor('the last line', async () => (await readStopped({ tail: 1 })).toString().endsWith('y\n'));
  assert.deepEqual(sizes(), [0, 0]);
  kill();
});

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

test('where there can be no file the output is read all the same, and that is told once', async (t) => {
  const { write, daemon, dir, failures, readStopped } = await scene(t, 'json-file', {});
  mkdirSync(join(dir, 'stdout.0'));
  const { outputs, log, kill } = await daemon();
  for (const stream of STREAMS) {
    write(stream, 'line\n');
    log.write(stream, await take(outputs[stream]));
  }
  assert.deepEqual(await logged(readStopped), ['line', 'line']);
  assert.equal(failures.length, 1);
  kill();
});

test('a note of another boot of the machine, or a damaged one, is none', async (t) => {
  const { write, daemon, dir, readStopped } = await scene(t, 'json-file', {});
  const first = await daemon();
  write('stdout', 'lost with the machine\n');
  await take(first.outputs.stdout);
  first.kill();
  const note = JSON.parse(readFileSync(join(dir, 'spool'), 'utf8')) as { boot: string };
  for (const text of [JSON.stringify({ ...note, boot: 'another' }), '{"boot":']) {
    writeFileSync(join(dir, 'spool'), text);
    const next = await daemon();
    write('stdout', 'new\n');
    assert.equal((await take(next.outputs.stdout)).toString(), 'new\n');
    next.kill();
  }
  assert.deepEqual(await logged(readStopped), []);
});
