import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { runPs } from './top.js';

test('rows of the given processes alone; what is left over belongs to the last column', async () => {
  const { titles, rows } = await runPs([process.pid], '-o pid,args');
  assert.deepEqual(titles, ['PID', 'COMMAND']);
  assert.equal(rows.length, 1);
  assert.match(rows[0]?.join('|') ?? '', new RegExp(`^${process.pid}\\|.*node.* `));
});

test('faults are told in the words of the program, in one line', async () => {
  await assert.rejects(runPs([1], 'nope'), /^(EngineError: )?ps: error: .+$/);
  await assert.rejects(runPs([1], '-o args'), /Couldn't find PID field in ps output/);
});

test('only the given processes are listed, as others may have command lines of any length', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'top-'));
  const { PATH = '' } = process.env;
  t.after(() => {
    process.env['PATH'] = PATH;
    rmSync(dir, { recursive: true });
  });
  process.env['PATH'] = `${dir}:${PATH}`;
  const program = (script: string): void => {
    writeFileSync(join(dir, 'ps'), `#!/bin/sh\n${script}\n`);
    chmodSync(join(dir, 'ps'), 0o755);
  };
  const long = 'a '.repeat(60_000).trim();
  program(`echo "PID ARGS"; echo "7  $*"; echo "8 x"; echo; echo " 9 ${long}  b"`);
  assert.deepEqual(await runPs([7, 9], '-e  -f'), {
    titles: ['PID', 'ARGS'],
    rows: [
      ['7', '-e -f -q7,9'],
      ['9', `${long} b`],
    ],
  });
  // Such arguments cannot be used beside a list of processes.
  program('case "$*" in *-q*) echo no >&2; exit 1;; esac; echo "PID ARGS"; echo "7 $*"; echo "8 x"');
  assert.deepEqual((await runPs([7], '--forest')).rows, [['7', '--forest']]);
});
