/** Options that a start shows which fails at once. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { OptionName } from '../../src/config/options.js';

/** This file is in dist/test/flag-effects. */
const MAIN = fileURLToPath(new URL('../../bundle/main.js', import.meta.url));

/** Returns the text that the daemon prints on a terminal when the service manager passed no sockets. */
async function onTerminal(...flags: readonly string[]): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'flag-effects-'));
  const places = ['--data-root', join(dir, 'data'), '--exec-root', join(dir, 'exec'), '--pidfile', join(dir, 'pid')];
  try {
    const command = [MAIN, '--config-file', '/dev/null', '--host', 'fd://', ...places, ...flags].join(' ');
    return await new Promise((resolve) => {
      execFile('script', ['-qefc', command, '/dev/null'], (_error, stdout) => resolve(stdout));
    });
  } finally {
    await rm(dir, { recursive: true });
  }
}

export const LONE: Readonly<Partial<Record<OptionName, () => Promise<void>>>> = {
  rawLogs: async () => {
    const coloured = (await onTerminal()).replaceAll('\u001b', '');
    assert.match(coloured, /^\[31mFATAL\[0m \d\d:\d\d:\d\d\.\d{3} engined cannot run/);
    // No level keeps the reason of a failed start back.
    const plain = await onTerminal('--raw-logs', '--log-level', 'fatal');
    assert.match(plain, /^time=\d{4}-\d\d-\d\dT\S+ level=fatal msg="engined cannot run/);
  },
};
