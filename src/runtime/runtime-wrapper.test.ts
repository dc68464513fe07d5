import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { wrapRuntime } from './runtime-wrapper.js';

test('arguments arrive as they are, before those of the caller', () => {
  const dir = mkdtempSync(join(tmpdir(), 'engined-wrapper-'));
  try {
    const args = ['--a b', "it's", '$(id)', '"', '\\', ''];
    const path = wrapRuntime(join(dir, 'runtimes'), 'printf', ['%s\n', ...args]);
    assert.equal(execFileSync(path, ['last one'], { encoding: 'utf8' }), `${[...args, 'last one'].join('\n')}\n`);
    assert.equal(wrapRuntime(join(dir, 'runtimes'), 'printf', ['%s\n', ...args]), path);
    assert.notEqual(wrapRuntime(join(dir, 'runtimes'), 'printf', []), path);
    assert.equal(readdirSync(join(dir, 'runtimes')).length, 2);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
