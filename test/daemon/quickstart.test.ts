/** The README's first command, as a machine runs it. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

/** This file is in dist/test. */
const SCRIPT = fileURLToPath(new URL('../../../scripts/quickstart.mjs', import.meta.url));

test('quickstart shows the nine operations and takes everything away again', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [SCRIPT, '--once'], { timeout: 120_000 });
  for (let number = 1; number <= 9; number++) assert.match(stdout, new RegExp(`^${number}\\. `, 'm'));
  assert.match(stdout, /Status: Downloaded newer image for /);
  assert.match(stdout, /-> \{"StatusCode":0\}\n/);
  assert.match(stdout, /-> hello world\n/);
  assert.match(stdout, /-> \{"Id":"sha256:[0-9a-f]{64}"\}\n\ncleaning up\n$/);
  const dir = /files in (\S+)/.exec(stdout)?.[1] ?? '';
  assert.match(dir, /^\/.+engined-/);
  assert.equal(existsSync(dir), false);
});
