import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { createStdio, reopenStdio } from './stdio.js';

const parent = mkdtempSync(join(tmpdir(), 'stdio-'));
test.after(() => rmSync(parent, { recursive: true }));

test('output is whole, ends with its writer, and the files go with it', async () => {
  const io = createStdio({ dir: join(parent, 'a'), stdin: false, stdout: true, stderr: false, terminal: false });
  assert.equal(io.stderr, undefined);
  assert.equal(io.paths.stdin, '');
  let bytes = 0;
  io.stdout?.on('data', (chunk: Buffer) => (bytes += chunk.length));
  // stderr is filled beyond what a FIFO holds: it must be read although nobody asked for it.
  const script = 'dd if=/dev/zero bs=64k count=8 >"$1" 2>/dev/null; dd if=/dev/zero bs=64k count=8 >"$0" 2>/dev/null';
  execFile('sh', ['-c', script, io.paths.stderr, io.paths.stdout]);
  await io.drained(5_000);
  assert.equal(bytes, 8 * 64 * 1024);
  await io.close();
  await io.close();
  assert.equal(existsSync(join(parent, 'a')), false);
});

test('which FIFOs there are', async () => {
  for (const [request, files] of [
    [{ stdin: false, stdout: false, stderr: false, terminal: false }, []],
    [{ stdin: true, stdout: false, stderr: false, terminal: false }, ['stderr', 'stdin', 'stdout']],
    [{ stdin: true, stdout: true, stderr: true, terminal: true }, ['stdin', 'stdout']],
    [{ stdin: false, stdout: false, stderr: false, terminal: true }, ['stdout']],
  ] as const) {
    const dir = join(parent, 'b');
    const io = createStdio({ dir, ...request });
    assert.deepEqual(existsSync(dir) ? readdirSync(dir).sort() : [], files);
    await io.drained(0);
    await io.close();
  }
});

test('an unread stream does not hold up draining beyond the time limit', async () => {
  const io = createStdio({ dir: join(parent, 'c'), stdin: false, stdout: true, stderr: true, terminal: false });
  await io.drained(50);
  await io.close();
  await io.drained(10_000);
});

test('stdin waits for its reader, and gives up when closed', async () => {
  const io = createStdio({ dir: join(parent, 'd'), stdin: true, stdout: false, stderr: false, terminal: false });
  const opening = io.openStdin();
  const reader = execFile('cat', [io.paths.stdin]);
  const stdin = await opening;
  const output = reader.stdout ? once(reader.stdout, 'data') : assert.fail();
  stdin?.end('text');
  const readerEnded = once(reader, 'exit');
  assert.deepEqual(await output, ['text']);
  // Until then it has the FIFO open, and stdin would have its reader.
  await readerEnded;
  const abandoned = io.openStdin();
  await io.close();
  assert.equal(await abandoned, undefined);
});

test('FIFOs are opened again, those that are gone are left out', async () => {
  const io = createStdio({ dir: join(parent, 'e'), stdin: false, stdout: true, stderr: true, terminal: false });
  rmSync(io.paths.stderr);
  const again = reopenStdio(io.paths);
  assert.ok(again.stdout);
  assert.equal(again.stderr, undefined);
  await io.close();
  await again.close();
});

test('FIFOs of an earlier life are replaced; a failure leaves nothing', async () => {
  const request = { stdin: false, stdout: true, stderr: true, terminal: false };
  const dir = join(parent, 'f');
  const old = createStdio({ dir, ...request });
  const io = createStdio({ dir, ...request });
  await io.close();
  await old.close();
  assert.equal(existsSync(dir), false);

  writeFileSync(join(parent, 'file'), 'kept');
  assert.throws(
    () => createStdio({ dir: join(parent, 'file'), ...request }),
    (error) => isEngineError(error, 'internal'),
  );
  assert.equal(readFileSync(join(parent, 'file'), 'utf8'), 'kept');
});
